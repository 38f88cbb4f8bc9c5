"""Checks `dsh demo` from the files that it leaves, not from what it says of itself.

usage: check_demo.py PATH/TO/dsh
"""
import json
import pathlib
import subprocess
import sys
import tempfile


def lines(path):
    return [json.loads(line) for line in pathlib.Path(path).read_text().splitlines() if line.strip()]


def main():
    with tempfile.TemporaryDirectory() as home:
        dsh = pathlib.Path(sys.argv[1]).resolve()
        run = subprocess.run([dsh, "--home", home, "demo", "--json"], capture_output=True, timeout=120, cwd=home)
        assert run.stdout, f"demo ended with {run.returncode} and printed nothing: {run.stderr.decode()[-2000:]}"
        report = json.loads(run.stdout)

    first, second = report["processes"]
    assert first["signal"] == 9, f"the first process was not ended by SIGKILL: {first}"
    assert second["pid"] != first["pid"], "one process did all of it"

    events = lines(report["sessionFile"])
    messages = [e["data"]["message"] for e in events if e["type"] == "assistant/message"]
    cut = messages[0]
    state = cut["source"]["replayState"]
    kinds = [b["type"] for b in cut["content"]]
    assert kinds == ["reasoning", "text"], f"kept blocks {kinds}"
    assert [b["type"] for b in state["blocks"]] == kinds, f"entries {state['blocks']} for blocks {kinds}"
    finish = [e["data"]["chunk"] for e in events if e["type"] == "assistant/chunk" and e["data"]["chunk"]["type"] == "finish"]
    emitted = [b["type"] for b in finish[0]["replayState"]["blocks"]]
    assert emitted == ["reasoning", "text", "tool-call"], f"the provider's answer had {emitted}: nothing was pruned"
    assert finish[0]["reason"]["kind"] == "max-tokens", f"first answer ended with {finish[0]['reason']}"

    requests = [r["body"] for r in lines(report["requestLog"])]
    assert len(requests) == 2, f"{len(requests)} requests"
    answer = [m for m in requests[1]["messages"] if m["role"] == "assistant"]
    assert len(answer) == 1, f"assistant messages of the second request: {answer}"
    reasoning, text = (b["text"] for b in cut["content"])
    field = state["blocks"][0]["thinkingSignature"]
    assert answer[0].get(field) == reasoning and reasoning, f"reasoning did not go back natively in {field!r}: {answer[0]}"
    assert answer[0]["content"] == text or answer[0]["content"] == [{"type": "text", "text": text}], f"text: {answer[0]}"
    assert not any("tool_calls" in m for m in requests[1]["messages"]), "the second request has tool_calls"
    assert any(e["type"] == "turn/end" and e["data"]["reason"]["kind"] == "completed" for e in events), "no completed turn"
    assert run.returncode == 0, f"demo ended with {run.returncode}: {run.stderr.decode()[-2000:]}"
    print("the demo holds")


main()
