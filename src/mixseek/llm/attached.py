"""Attachments as parts of a message: what a model can see is shown to it, what it cannot is named in words."""

import re
from collections.abc import Sequence
from hashlib import sha256

from pydantic_ai import BinaryContent, TextContent, UserContent
from pydantic_ai.models import Model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.profiles import ModelProfile

from mixseek.prompt_builder.fence import fenced, new_nonce
from mixseek.prompt_builder.formatters import one_line
from mixseek.records import Attachment
from mixseek.templating import JAPANESE, Texts

__all__ = ["attached", "attached_text", "kept_content", "profiles_of"]

_FLAGS = {
    "image/png": "supports_image_input",
    "image/jpeg": "supports_image_input",
    "image/gif": "supports_image_input",
    "image/webp": "supports_image_input",
    "application/pdf": "supports_document_input",
    "audio/wav": "supports_audio_file_input",
    "audio/mpeg": "supports_audio_file_input",
}
_KEPT = re.compile(r"sha256:[0-9a-f]{64}")


def attached(attachments: Sequence[Attachment], model: Model, texts: Texts = JAPANESE) -> list[UserContent]:
    """All that ``model`` can see of them."""
    parts: list[UserContent] = []
    for attachment in attachments:
        if attachment.is_text:
            parts.append(_text(attachment, texts))
        elif _can_see(model, attachment):
            parts += [_told(texts.attachment, attachment, texts), _binary(attachment)]
        else:
            parts.append(_told(texts.attachment_not_seen, attachment, texts))
    return parts


def attached_text(attachments: Sequence[Attachment], texts: Texts = JAPANESE) -> list[UserContent]:
    """Their texts, and the names of the others: what judges see."""
    return [
        _text(attachment, texts) if attachment.is_text else _told(texts.attachment_not_text, attachment, texts)
        for attachment in attachments
    ]


def kept_content(part: UserContent) -> UserContent:
    """A part of a message as it is kept: a file by its hash, never its content, which would be there for every call."""
    if isinstance(part, BinaryContent):
        told = part.identifier if _KEPT.fullmatch(part.identifier) else _hash(part.data)
        return f"[{part.media_type}, {len(part.data)} bytes, {told}]"
    if isinstance(part, TextContent) and isinstance(part.metadata, dict) and "attachment" in part.metadata:
        return str(part.metadata["attachment"])
    return part


def _text(attachment: Attachment, texts: Texts) -> TextContent:
    content = fenced(attachment.decoded() or "", new_nonce(), texts)
    shown = f"{_told(texts.attachment, attachment, texts)}\n{content}"
    kept = f"[{_named(attachment, texts)}, sha256:{attachment.sha256}]"
    return TextContent(shown, metadata={"attachment": kept})


def _binary(attachment: Attachment) -> BinaryContent:
    return BinaryContent(attachment.data, media_type=attachment.media_type, identifier=f"sha256:{attachment.sha256}")


def _told(words: str, attachment: Attachment, texts: Texts) -> str:
    return words.format(attachment=_named(attachment, texts))


def _named(attachment: Attachment, texts: Texts) -> str:
    name, media_type = one_line(attachment.name), one_line(attachment.media_type)
    return texts.attachment_name.format(name=name, media_type=media_type, size=attachment.size)


def _hash(data: bytes) -> str:
    return f"sha256:{sha256(data).hexdigest()}"


def _can_see(model: Model, attachment: Attachment) -> bool:
    """Whether every model that may be asked takes such a file."""
    flag = _FLAGS.get(attachment.media_type)
    return flag is not None and all(bool(profile.get(flag, True)) for profile in profiles_of(model))


def profiles_of(model: Model) -> list[ModelProfile]:
    """What is known of every model that may be asked."""
    if isinstance(model, FallbackModel):
        return [profile for each in model.models for profile in profiles_of(each)]
    return [model.profile]
