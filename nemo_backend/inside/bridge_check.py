"""Check on one node, before the job uses the other nodes, whether Megatron-Bridge can build the run's configuration.

bridge_worker.py loads this module inside Megatron-Bridge's environment for --check. The check makes the configuration
with the same code as the run. Bridge then resolves it for all processes of the run, as at the start of training.
"""

from pathlib import Path

HERE = Path(__file__).resolve().parent
PACKAGES = ("torch", "transformer-engine", "megatron-core", "megatron-bridge", "transformers", "numpy")
ANOTHER_IMAGE = "pass --image with Megatron-Bridge 0.6"
ANOTHER_SETTING = "pass --set with a value that this Megatron-Bridge accepts, or " + ANOTHER_IMAGE
NO_CONFIGURATION = ("LocalEntryNotFoundError", "OfflineModeIsEnabled", "GatedRepoError", "couldn't connect to")
FETCH = "export HF_TOKEN and download it with python launch/setup.py --site=NAME --model=MODEL --engine=bridge"
LOCAL = "model.transformer_impl=local"
# Bridge replaces a named precision by its fields, and Megatron-core the older name of one CUDA graph per iteration.
RENAMED = ("mixed_precision is MixedPrecisionConfig(", "model.cuda_graph_impl is full_iteration,")


def look(options, work, kit):
    """Return the versions and the devices. Raise CheckFailure for the first problem."""
    asked = kit.load(HERE / "nemo_check.py")
    with kit.checking("torch cannot be imported", ANOTHER_IMAGE):
        versions = asked.list_versions(PACKAGES, kit)
    devices = asked.find_devices(options.tasks_per_node, options.device_name, kit)
    asked.import_transformer_engine([] if LOCAL in options.settings else ["Megatron-Bridge"], kit)
    with kit.checking("Megatron-Bridge cannot be imported", ANOTHER_IMAGE):
        on_cpu = work.imported()
    try:
        with kit.checking("Megatron-Bridge refuses the run's configuration", ANOTHER_SETTING):
            found = work.prepared(on_cpu)
            changed = resolve(found, options.settings)
    except kit.CheckFailure as failure:
        if not any(word in str(failure) for word in NO_CONFIGURATION):
            raise
        what = "the model's configuration is not in HF_HOME, and the job is offline"
        raise kit.CheckFailure(what, str(failure), FETCH) from failure
    if changed:
        raise kit.CheckFailure("Megatron-Bridge would train with different settings", changed[0], ANOTHER_SETTING)
    return {"versions": versions, "devices": devices}


def resolve(found, words):
    """Resolve a configuration as pretrain() does. Return a sentence for each override that Bridge did not keep."""
    from megatron.bridge.training.config import runtime_config_update

    ignored = unmet(found, words)
    runtime_config_update(found)
    return ignored + [one for one in unmet(found, words) if not one.startswith(RENAMED)]


def unmet(found, words):
    """Return a sentence for each override that the configuration does not have."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    wrong = []
    for override in OverridesParser.create().parse_overrides(list(words)):
        place = found
        for name in override.key_or_group.split("."):
            place = getattr(place, name, "missing")
        if comparable(place) != comparable(override.value()):
            wrong.append(f"{override.key_or_group} is {place}, but the plan has {override.value()}")
    return wrong


def comparable(value):
    """Return a value in the form that a parsed override has: a dtype as its name, a tuple as a list."""
    if isinstance(value, bool | int | float) or value is None:
        return value
    if isinstance(value, list | tuple):
        return [comparable(one) for one in value]
    return str(getattr(value, "name", value)).removeprefix("torch.")
