"""Programs that run inside MaxText's environment. They cannot import Stepmark's packages."""
