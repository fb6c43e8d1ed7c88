"""Which metrics come with MixSeek, as data: enough to check a file before any of their code is imported.

They register in ``mixseek.plugins.metrics`` as anyone's do. A judge asks a model and takes an instruction; a metric
that is computed in code does neither.
"""

from collections.abc import Container, Mapping

from mixseek import plugins

__all__ = ["BUILT_IN_METRICS", "CODE_METRICS", "JUDGES", "metric_type"]

_JUDGE_MODULES: Mapping[str, str] = {
    "ClarityCoherence": "clarity_coherence",
    "Coverage": "coverage",
    "Relevance": "relevance",
    "LLMPlain": "llm_plain",
}
_CODE_MODULES: Mapping[str, str] = {
    "ExitCode": "exit_code",
    "Length": "length",
    "Terms": "terms",
    "Similarity": "similarity",
    "Readability": "readability",
    "Structure": "structure",
    "JsonSchema": "json_schema",
    "RegularExpression": "regular_expression",
    "NumericAnswer": "numeric_answer",
}

JUDGES = tuple(_JUDGE_MODULES)
CODE_METRICS = tuple(_CODE_MODULES)
BUILT_IN_METRICS = (*JUDGES, *CODE_METRICS)

for _name, _module in {**_JUDGE_MODULES, **_CODE_MODULES}.items():
    plugins.metrics.register(_name, f"mixseek.evaluator.metrics.{_module}:{_name}")


def metric_type(
    name: str, given: str | None, *, instructed: bool, custom: Container[str], known: Container[str] = plugins.metrics
) -> str:
    """The class an entry of ``[[metrics]]`` is of, from its ``name``, its ``type`` and whether it has an instruction.

    An instruction under a name that no class takes one by makes a judge of its own.

    >>> metric_type("Tone", None, instructed=True, custom={})
    'LLMPlain'
    >>> [metric_type("Length", None, instructed=instructed, custom={}) for instructed in (True, False)]
    ['LLMPlain', 'Length']
    """
    kind = given or name
    if kind in custom or not instructed:
        return kind
    takes_none = kind in CODE_METRICS and given is None
    return "LLMPlain" if takes_none or kind not in known else kind
