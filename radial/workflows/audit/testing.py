"""Robustness in a test suite: one call that fails as an assertion does."""

from typing import Any

from radial.workflows.audit.audit import audit
from radial.workflows.audit.require import requirement
from radial.workflows.audit.result import AuditResult


def assert_robust(agent: Any, *requirements: str, **settings: Any) -> AuditResult:
    """Audit an agent and raise `AssertionError` with one line for each requirement that it breaks.

    requirements  such as "return@0.05>=400" or "acr@0.01>=0.9"        settings  of `audit`
    """
    wanted = [requirement(text) for text in requirements]
    result = audit(agent, require=requirements, trace=False, **settings)
    broken = [line for line in (each.broken(result) for each in wanted) if line is not None]
    if broken:
        raise AssertionError("\n".join(broken))
    return result
