"""Images in requests: only those that come along, and none too large to look at.

Owns the limits, kept before anything is decoded. A URL of another machine is never fetched: it would let a client
make this machine ask others in its place.
"""

from __future__ import annotations

import base64
import binascii
import io

from .errors import BadRequest, NotBuiltIn

MAX_IMAGE_BYTES = 8 * 1024**2
MAX_IMAGE_PIXELS = 4096 * 4096
_TYPES = ("image/png", "image/jpeg", "image/webp", "image/gif")


def refuse_image(url: str, param: str) -> NotBuiltIn:
    """The refusal of an image that is right in itself: no model here can see. Raises BadRequest for one that is not."""
    check_image(_bytes_of(url, param), param)
    return NotBuiltIn("this model has no image encoder", "send text alone", param=param)


def check_image(content: bytes, param: str) -> None:
    """Raises BadRequest for bytes that are no image, or one of too many pixels; only its header is read."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(content)) as image:
            width, height = image.size
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise BadRequest("the image cannot be read", "send a PNG, JPEG, WebP or GIF", param=param) from error
    if width * height > MAX_IMAGE_PIXELS:
        raise BadRequest(
            f"the image has {width} x {height} pixels, the most is {MAX_IMAGE_PIXELS}", "make it smaller", param=param
        )


def _bytes_of(url: str, param: str) -> bytes:
    head, comma, body = url.partition(",")
    if not url.startswith("data:"):
        raise BadRequest(
            "an image is given by a URL that is not a data: URL; nothing is fetched from other machines",
            "send the image itself: data:image/png;base64,...",
            param=param,
        )
    media_type, _, encoding = head.removeprefix("data:").partition(";")
    if not comma or encoding != "base64" or media_type not in _TYPES:
        raise BadRequest(f"{head[:60]} is no image", f"give data:TYPE;base64, of {', '.join(_TYPES)}", param=param)
    if len(body) * 3 // 4 > MAX_IMAGE_BYTES:
        raise BadRequest(
            f"the image has {len(body) * 3 // 4} B, the most is {MAX_IMAGE_BYTES} B", "make it smaller", param=param
        )
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadRequest("the image is not base64", "encode it as base64", param=param) from error
