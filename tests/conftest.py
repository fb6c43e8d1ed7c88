"""No test speaks to anything but this machine."""

import os

import pydantic_ai.models

pydantic_ai.models.ALLOW_MODEL_REQUESTS = False
os.environ["MIXSEEK_ONLY_LOOPBACK"] = "1"
