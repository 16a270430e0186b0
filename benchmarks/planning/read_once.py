"""Configs for those who resolve hundreds of requests: each row is looked up once, and then remembered."""

from functools import cache

from benchmarks.request.resolve import ConfigSource


class ReadOnce:
    """A ConfigSource over another one. A file that changes while a script runs is not seen."""

    def __init__(self, configs: ConfigSource) -> None:
        self.model = cache(configs.model)
        self.hardware = cache(configs.hardware)
        self.site = cache(configs.site)
        self.way_on = configs.way_on
        self.recipes = cache(configs.recipes)
        self.mlperf = cache(configs.mlperf)
        self.profile_defaults = cache(configs.profile_defaults)
