"""Programs that run inside NeMo's environment. They cannot import Stepmark's packages."""
