"""Continues every session log of a folder with `dsh run --session`, once by each wire.

usage: continue_logs.py PATH/TO/dsh RULES LOGS

No session is ever stuck: whatever a log holds, the next prompt is answered. For each log and wire the answer has to
arrive, the request has to be one that a provider takes (RULES), and the events of the log have to stay what they were.
Prints `N passed, N failed`.
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

from judge import judge, load

# Rules of a provider that differ from those of its wire.
DEEPSEEK = {"reasoning_field": "reasoning_content", "needs_reasoning": True, "images": False}
MISTRAL = {"reasoning_field": [], "max_id": 9, "id_re": "[A-Za-z0-9]{9}"}
# Each route, named after its wire: model, adapter, the wire whose rules hold, and how they differ.
ROUTES = {
    "completions": ("m", "pi-ai", "openai-completions", {}),
    "responses": ("m", "pi-ai", "openai-responses", {}),
    "anthropic": ("m", "pi-ai", "anthropic-messages", {}),
    "google": ("gemini-3-pro", "pi-ai", "google-generative-ai", {}),
    "mistral": ("m", "pi-ai", "mistral-conversations", MISTRAL),
    "deepseek": ("deepseek-v4-flash", "deepseek", "openai-completions", DEEPSEEK),
}


def manifest(url):
    """All routes, at a mock provider that tells Mistral's and DeepSeek's wire by a segment of the path."""
    text = 'version = 1\n[agent]\nmodel = "completions/m"\n'
    for adapter in ("pi-ai", "deepseek"):
        text += f'[[adapter]]\nid = "{adapter}"\nlibrary = "dsh-llm-{adapter}"\n'
        for route, (_, owner, wire, _) in ROUTES.items():
            if owner == adapter:
                api = f'api = "{wire}"\n' if adapter == "pi-ai" else ""
                text += f'[adapter.config.providers.{route}]\n{api}base_url = "{url}/{route}"\n'
    return text


def main():
    dsh, rules_file, logs = (pathlib.Path(arg).resolve() for arg in sys.argv[1:4])
    rules = load(rules_file)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        requests = folder / "requests.jsonl"
        (folder / "script.json").write_text(json.dumps({"response": [{"text": "On we go.", "repeat": True}]}))
        mock = subprocess.Popen(
            [dsh, "mock-provider", "--script", folder / "script.json", "--log", requests],
            stdout=subprocess.PIPE, text=True, cwd=folder,
        )
        try:
            (folder / "loader.toml").write_text(manifest(mock.stdout.readline().strip()))
            results = [
                check(dsh, rules, folder, requests, log, route)
                for log in sorted(logs.glob("*.jsonl*"))
                for route in ROUTES
            ]
        finally:
            mock.terminate()
            mock.wait()
    print(f"{results.count(True)} passed, {results.count(False)} failed")
    return 0 if results and all(results) else 1


def check(dsh, rules, folder, requests, log, route):
    """True when the log goes on by this route; prints what is wrong."""
    model, _, wire, options = ROUTES[route]
    copy = folder / "log" / route / log.name
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(log, copy)
    before = events(dsh, folder, copy)
    seen = len(requests.read_text().splitlines()) if requests.exists() else 0
    run = subprocess.run(
        [dsh, "--home", folder / "home", "run", "--manifest", folder / "loader.toml", "--session", copy,
         "--model", f"{route}/{model}", "Go on."],
        capture_output=True, text=True, timeout=60, cwd=folder,
    )
    wrong = []
    rule = {"wire": wire, "model": model, "rules": options}
    if run.returncode != 0 or "On we go." not in run.stdout:
        wrong.append(f"exit {run.returncode}: {run.stdout[-200:]} {run.stderr[-400:]}")
    else:
        sent = [json.loads(line)["body"] for line in requests.read_text().splitlines()[seen:]]
        wrong += [] if len(sent) == 1 else [f"{len(sent)} requests"]
        wrong += [violation for body in sent for violation in judge(rules, rule, body)]
        after = events(dsh, folder, copy)
        wrong += [] if after[: len(before)] == before else ["events of the log have changed"]
    for what in wrong:
        print(f"FAIL  {log.name} by {route}: {what}")
    return not wrong


def events(dsh, folder, log):
    shown = subprocess.run(
        [dsh, "--home", folder / "home", "sessions", "show", "--events", "--json", log],
        capture_output=True, text=True, timeout=60, check=True,
    )
    return shown.stdout.splitlines()


sys.exit(main())
