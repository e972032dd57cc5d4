"""Translates the SAM template as SAM does, and prints CloudFormation's.

usage: translate.py TEMPLATE NAME=VALUE...
"""
import json
import os
import sys

os.environ.update(AWS_DEFAULT_REGION="eu-central-1", AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="x")

from samtranslator.translator.transform import transform
from samtranslator.yaml_helper import yaml_parse


class Policies:
    """The translator asks for managed policies; the template has none."""

    def load(self):
        return {}


with open(sys.argv[1]) as f:
    template = yaml_parse(f)
# What `sam package` does.
template["Resources"]["Function"]["Properties"]["CodeUri"] = "s3://artifacts/dns.zip"
parameters = dict(a.split("=", 1) for a in sys.argv[2:])
print(json.dumps(transform(template, parameters, Policies()), default=str))
