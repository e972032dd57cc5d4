"""Applies user data as cloud-init does, for TestCloudInit.

Reads a JSON list of cases from standard input: root (a directory), user_data (base64), index (the launch index, or null).
Each is applied by a child that has the directory as its root, with cloud-init's own code: the parts of user data, the filter
by launch index, the merge of cloud-configs, and the two modules that write files. Prints a JSON object: modern (files'
directories get the file's owner), and the log of each case.
"""

import base64
import inspect
import io
import json
import logging
import os
import pwd
import sys

from cloudinit import handlers, helpers, mergers, templater, user_data, util
from cloudinit.config import cc_write_files
from cloudinit.filters import launch_index
from cloudinit.handlers.cloud_config import CloudConfigPartHandler
from cloudinit.handlers.jinja_template import JinjaTemplatePartHandler
from cloudinit.settings import PER_INSTANCE


def apply(case):
    paths = helpers.Paths({"cloud_dir": "/var/lib/cloud", "run_dir": "/run/cloud-init"})
    for name in ("instance-data.json", "instance-data-sensitive.json"):
        util.write_file("/run/cloud-init/" + name, '{"v1": "x"}')
    message = user_data.UserDataProcessor(paths).process(base64.b64decode(case["user_data"]))
    message = launch_index.Filter(case["index"]).apply(message)
    configs = CloudConfigPartHandler(paths)
    configs.cloud_fn = None
    jinja = JinjaTemplatePartHandler(paths)
    by_type = {}
    for handler in (configs, jinja):
        for kind in handler.list_types():
            by_type[kind] = handler
    jinja.sub_handlers = by_type
    handlers.call_begin(configs, None, PER_INSTANCE)
    data = {"handlers": by_type, "handlerdir": "/run", "data": None, "frequency": PER_INSTANCE, "handlercount": 0, "excluded": []}
    handlers.walk(message, handlers.walker_callback, data)
    files = (configs.cloud_buf or {}).get("write_files") or []
    for late in (False, True):
        name = "write_files_deferred" if late else "write_files"
        some = [f for f in files if bool(util.get_cfg_option_bool(f, "defer", False)) == late]
        try:
            cc_write_files.write_files(name, some, "root:root")
        except Exception:  # as a module's: the next one runs
            logging.getLogger().exception("module %s", name)


def judge(case):
    """Runs a case in a child and returns its log."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        log = io.StringIO()
        logging.basicConfig(stream=log, level=logging.WARNING, force=True)
        try:
            os.chroot(case["root"])
            os.chdir("/")
            os.umask(0o022)
            apply(case)
        except BaseException:
            logging.getLogger().exception("cloud-init")
        os.write(into, log.getvalue().encode()[-4000:])
        os._exit(0)
    os.close(into)
    with os.fdopen(out, "rb") as stream:
        text = stream.read().decode(errors="replace")
    os.waitpid(child, 0)
    return text


if __name__ == "__main__":
    cases = json.load(sys.stdin)
    modern = "user" in inspect.signature(util.write_file).parameters
    # What Python loads at its first use is loaded before the root is another.
    pwd.getpwnam("root")
    "".encode("unicode_escape")
    mergers.construct(mergers.string_extract_mergers("dict()+list()+str()"))
    templater.render_string("## template: jinja\n{{ v1 }}", {"v1": ""})
    json.dump({"modern": modern, "logs": [judge(c) for c in cases]}, sys.stdout)
