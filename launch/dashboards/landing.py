"""Serve TensorBoard with step times as the first view. launch/dashboards/serving.py starts this program.

TensorBoard has no flag for its first view. So for an address without a query, this server returns a page that
redirects to the tab in the address, otherwise to Time Series. That view shows the newest runs, nights and series
without smoothing. The page makes TensorBoard show outliers, such as a slow night, unless the user changed that.
"""

import sys
from collections.abc import Callable, Iterable
from typing import Any

from absl import app
from tensorboard import default, main_lib, program
from tensorboard.plugins.base_plugin import FlagsError

Answer = Callable[..., Iterable[bytes]]  # a WSGI application

SHOWN = "%5E(newest%7Cnights%7Cseries)%2F"  # ^(newest|nights|series)/
QUERY = f"?smoothing=0&runFilter={SHOWN}"
FIRST_TAB = "timeseries"
PAGE = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Stepmark</title>
<script>
const stored = "_tb_global_settings"
const ours = {{ignoreOutliers: false, timeSeriesSettingsPaneOpened: false, sideBarWidthInPercent: 25}}
try {{
  localStorage.setItem(stored, JSON.stringify({{...ours, ...JSON.parse(localStorage.getItem(stored) || "{{}}")}}))
}} catch {{}}
location.replace("{QUERY}" + (location.hash || "#{FIRST_TAB}"))
</script></head>
<body><main><h1><a href="{QUERY}#{FIRST_TAB}">Step times</a></h1></main></body></html>
"""


def landing(tensorboard: Answer) -> Answer:
    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ.get("PATH_INFO", "/") not in ("", "/") or environ.get("QUERY_STRING"):
            return tensorboard(environ, start_response)
        start_response("200 OK", [("Content-Type", "text/html; charset=utf-8"), ("Cache-Control", "no-store")])
        return [PAGE.encode()]

    return answer


def server(tensorboard: Answer, flags: Any) -> Any:
    return program.create_port_scanning_werkzeug_server(landing(tensorboard), flags)


def main() -> None:
    main_lib.global_init()
    tensorboard = program.TensorBoard(plugins=default.get_plugins(), server_class=server)
    try:
        app.run(tensorboard.main, flags_parser=tensorboard.configure)
    except FlagsError as error:
        sys.exit(f"Error: {error}")


if __name__ == "__main__":
    main()
