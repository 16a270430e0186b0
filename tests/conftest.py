"""For all tests: an interrupt is one, however they were started."""

import signal


def pytest_configure() -> None:
    """A shell starts what it puts into the background with interrupts ignored, and so would all that tests start."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
