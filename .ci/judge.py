#!/usr/bin/env python3
"""Judges request bodies: judge.py RULES < bodies. RULES is the file with the providers' rules.

Every body has to be accepted. Then at least 100 bodies are made bad, each in one way that a provider refuses, and
each of those has to be refused: a judge that accepts everything proves nothing. Prints `N passed, N failed`.
"""
import copy
import importlib.util
import json
import sys
from collections import Counter


def load(path):
    """The module with the providers' rules."""
    spec = importlib.util.spec_from_file_location("rules", path)
    rules = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(rules)
    return rules


def judge(rules, line, body):
    """What a provider would refuse: violations of the rules of `line`'s wire, model and options."""
    wire, options = line["wire"], dict(line["rules"])
    if wire == "mistral-conversations":
        return mistral(rules, body, options)
    if wire == "google-generative-ai":
        options["model"] = line["model"]
    return rules.VALIDATORS[wire](body, **options)


def mistral(rules, body, options):
    """Completions with nine-letter ids, thinking parts, image URLs as plain strings, and images in tool results."""
    body = copy.deepcopy(body)
    for message in body.get("messages") or []:
        content = message.get("content") if isinstance(message, dict) else None
        if not isinstance(content, list):
            continue
        for part in content:
            if part.get("type") == "thinking" and not part.get("thinking"):
                return ["thinking part without thoughts"]
            if part.get("type") == "image_url" and isinstance(part.get("image_url"), str):
                part["image_url"] = {"url": part["image_url"]}
        theirs = {"thinking"} if message.get("role") == "assistant" else {"image_url"} if message.get("role") == "tool" else set()
        kept = [part for part in content if part.get("type") not in theirs]
        message["content"] = kept or ([{"type": "text", "text": "x"}] if content else content)
    return rules.validate_completions(body, **options)


def messages_of(body):
    return body.get("messages") or body.get("input") or body.get("contents")


def spoil(wire, body):
    """Yields (name, bad body)."""
    def bad(change):
        copied = copy.deepcopy(body)
        return copied if change(copied, messages_of(copied)) else None

    def nothing(b, m):
        m.clear()
        return True

    def answer_last(b, m):
        if wire == "google-generative-ai":
            m.append({"role": "model", "parts": [{"text": "x"}]})
        elif wire == "openai-responses":
            m.append({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "x"}]})
        else:
            m.append({"role": "assistant", "content": "x"})
        return True

    def blank_text(b, m):
        if wire == "google-generative-ai":
            m.append({"role": "user", "parts": [{"text": " "}]})
        elif wire == "openai-responses":
            m.append({"role": "user", "content": [{"type": "input_text", "text": ""}]})
        else:
            m.append({"role": "user", "content": ""})
        return True

    def odd_role(b, m):
        m.append({"role": "narrator", "content": "x"} if wire != "google-generative-ai" else {"role": "narrator", "parts": [{"text": "x"}]})
        return True

    def lone_surrogate(b, m):
        m.append({"role": "user", "content": "x\ud83d"} if wire != "google-generative-ai" else {"role": "user", "parts": [{"text": "x\ud83d"}]})
        return True

    def lost_result(b, m):
        for message in list(m):
            if not isinstance(message, dict):
                continue
            if message.get("role") == "tool" or message.get("type") == "function_call_output":
                m.remove(message)
                return True
            for parts in (message.get("content"), message.get("parts")):
                for part in list(parts) if isinstance(parts, list) else []:
                    if isinstance(part, dict) and (part.get("type") == "tool_result" or "functionResponse" in part):
                        parts.remove(part)
                        return True
        return False

    def no_object(b, m):
        for message in m:
            for call in message.get("tool_calls") or []:
                call["function"]["arguments"] = "{\"cut"
                return True
            if message.get("type") == "function_call":
                message["arguments"] = "[]"
                return True
            for part in message.get("content") if isinstance(message.get("content"), list) else []:
                if part.get("type") == "tool_use":
                    part["input"] = "x"
                    return True
            for part in message.get("parts") or []:
                if "functionCall" in part:
                    part["functionCall"]["args"] = "x"
                    return True
        return False

    for change in (nothing, answer_last, blank_text, odd_role, lone_surrogate, lost_result, no_object):
        made = bad(change)
        if made is not None:
            yield change.__name__, made


def main():
    rules = load(sys.argv[1])
    passed = failed = spoiled = 0
    bodies, conversations, kinds = Counter(), set(), Counter()
    for text in sys.stdin:
        line = json.loads(text)
        bodies[line["wire"]] += 1
        conversations.add(line["conversation"])
        violations = judge(rules, line, line["body"])
        if violations:
            failed += 1
            if failed <= 20:
                print(f"FAIL conversation {line['conversation']} step {line['step']} to {line['model']}: {violations[:3]}")
        if line["step"] in (0, 5) and line["conversation"] % 40 == 0 or kinds["lost_result"] < 20 or kinds["no_object"] < 20:
            for name, made in spoil(line["wire"], line["body"]):
                spoiled += 1
                kinds[name] += 1
                if judge(rules, line, made):
                    continue
                failed += 1
                print(f"FAIL a body made bad by {name} is accepted: {line['wire']} {line['model']}")
    if spoiled < 100:
        failed += 1
        print(f"FAIL only {spoiled} bodies were made bad")
    passed = len(conversations) - min(failed, len(conversations))
    print(f"{sum(bodies.values())} bodies of {len(conversations)} conversations: {dict(bodies)}; {spoiled} made bad: {dict(kinds)}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
