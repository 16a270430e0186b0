"""Download the Hugging Face files of a site once, with the user's token, for jobs without a token."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.assets import Repository, hub_folder, hub_home
from benchmarks.backend import Backend, ReadsHub, backends, find_backend
from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.request.resolve import ANY
from benchmarks.values import Benchmark, Site
from launch.assets import hub


def hub_repositories(
    backend: str | None, engine: str | None, model: str | None, configs: Configs
) -> list[Repository]:
    """Return the gated repositories that the recipes of an engine or a model need; empty if neither is named."""
    if engine is None and model is None:
        return []
    chosen = [find_backend(backend)] if backend else list(backends().values())
    found = [
        one.hub_repository(recipe.engine, name)
        for one in chosen
        if isinstance(one, ReadsHub)
        for recipe in configs.recipes()
        if recipe.backend == one.name and engine in (None, recipe.engine)
        for name in recipe.models
        if name != ANY and model in (None, name)
    ]
    return list({repository.name: repository for repository in found if repository}.values())


def fetch(site: Site, repositories: Sequence[Repository]) -> list[tuple[str, str]]:
    """Download missing repositories. Return a row per repository. Raise RequestError if the token is refused."""
    home = hub_home(site)
    if home is None:
        return []
    rows = []
    for repository in repositories:
        folder = hub_folder(home, repository)
        commit, how = _commit_in_cache(repository, folder), "exists"
        if commit is None:
            commit, how = hub.fetch(hub.from_environment(), repository, cache_dir=folder.parent), "fetched"
        rows.append((repository.name, f"{how}: {folder}, commit {commit[:12]}"))
    return rows


def refuse(benchmark: Benchmark, backend: Backend) -> None:
    """Raise RequestError if the job would read a configuration that was not downloaded."""
    home, repository = hub_home(benchmark.site), None
    if isinstance(backend, ReadsHub):
        repository = backend.hub_repository(benchmark.engine, benchmark.model.name)
    if repository is not None and home is None and benchmark.site.runtime == "container":
        raise RequestError(
            f"site '{benchmark.site.name}' has no folder for the configuration of {repository.name}",
            where=f"the file of site {benchmark.site.name}: container.images",
            why=f"'{benchmark.engine}' reads this Hugging Face configuration from the folder of the site's images; "
            "add `container: {images: /FOLDER}` to your site's file",
        )
    if home is None or repository is None or _commit_in_cache(repository, hub_folder(home, repository)):
        return
    token = f"; the repository is gated: export {hub.TOKEN_VARIABLE} for the download" if repository.gated else ""
    raise RequestError(
        f"site '{benchmark.site.name}' does not have the configuration of {repository.name}",
        where=str(hub_folder(home, repository)),
        why=f"jobs are offline, so it is downloaded once before the first job{token}",
        next_command=f"python launch/setup.py --site={benchmark.site.name} --engine={benchmark.engine} "
        f"--model={benchmark.model.name}",
    )


def _commit_in_cache(repository: Repository, folder: Path) -> str | None:
    """Return the commit that an offline job would read from the cache; None if the commit is incomplete."""
    try:
        commit = (folder / "refs" / repository.revision).read_text().strip()
    except OSError:
        return None
    return commit if (folder / "snapshots" / commit / repository.files[0]).is_file() else None
