"""Translates template.yaml as SAM does, deploys it to moto, and prints what is there then.

usage: deploy.py TEMPLATE EVENTS-DIR ZIP
Every file of EVENTS-DIR is tried against the pattern of every deployed rule.
"""
import ast
import glob
import json
import os
import sys

os.environ.update(AWS_DEFAULT_REGION="eu-central-1", AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="x")

import boto3
from moto import mock_aws
from moto.events.models import EventPattern
from samtranslator.translator.transform import transform
from samtranslator.yaml_helper import yaml_parse

PARAMETERS = {"ClusterName": "demo", "GroupNames": "demo-masters,demo-minions", "Architecture": "arm64"}


class Policies:
    """The translator asks for managed policies; the template has none."""

    def load(self):
        return {}


def clean(answer):
    return json.loads(json.dumps(answer, default=str))


def document(policy):
    """CloudFormation in moto stores a policy as Python writes it."""
    return ast.literal_eval(policy) if isinstance(policy, str) else policy


def main(template_path, events_dir, zip_path):
    s3, route53 = boto3.client("s3"), boto3.client("route53")
    s3.create_bucket(Bucket="artifacts", CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
    with open(zip_path, "rb") as f:
        s3.put_object(Bucket="artifacts", Key="dns.zip", Body=f.read())
    zone = route53.create_hosted_zone(Name="k8s", CallerReference="1")["HostedZone"]["Id"].split("/")[-1]
    with open(template_path) as f:
        template = yaml_parse(f)
    # What `sam package` does.
    template["Resources"]["Function"]["Properties"]["CodeUri"] = "s3://artifacts/dns.zip"
    parameters = PARAMETERS | {"ZoneId": zone}
    translated = clean(transform(template, dict(parameters), Policies()))

    cfn = boto3.client("cloudformation")
    cfn.create_stack(
        StackName="hardtack-dns", TemplateBody=json.dumps(translated), Capabilities=["CAPABILITY_IAM"],
        Parameters=[{"ParameterKey": k, "ParameterValue": v} for k, v in parameters.items()])
    stack = cfn.describe_stacks(StackName="hardtack-dns")["Stacks"][0]

    iam, events, sqs, fn = (boto3.client(n) for n in ("iam", "events", "sqs", "lambda"))
    outputs = {o["OutputKey"]: o["OutputValue"] for o in stack["Outputs"]}
    role = outputs["RoleArn"].split("/")[-1]
    rules = events.list_rules()["Rules"]
    for rule in rules:
        rule["Targets"] = events.list_targets_by_rule(Rule=rule["Name"])["Targets"]
        rule["Matches"] = []
        for path in sorted(glob.glob(events_dir + "/*.json")) if rule.get("EventPattern") else []:
            with open(path) as f:
                # The API's TestEventPattern is empty in moto; this is what its bus delivers by.
                if EventPattern.load(rule["EventPattern"]).matches_event(json.load(f)):
                    rule["Matches"].append(os.path.basename(path)[:-5])
    print(json.dumps(clean({
        "Zone": zone,
        "Status": stack["StackStatus"],
        "Outputs": outputs,
        "Policies": {n: document(iam.get_role_policy(RoleName=role, PolicyName=n)["PolicyDocument"])
                     for n in iam.list_role_policies(RoleName=role)["PolicyNames"]},
        "Attached": iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"],
        "Rules": rules,
        "Queue": sqs.get_queue_attributes(QueueUrl=outputs["QueueUrl"], AttributeNames=["All"])["Attributes"],
        "DeadLetters": sqs.get_queue_attributes(QueueUrl=outputs["DeadLetterQueueUrl"], AttributeNames=["All"])["Attributes"],
        "Function": fn.get_function_configuration(FunctionName=outputs["FunctionName"]),
        "Mappings": fn.list_event_source_mappings(FunctionName=outputs["FunctionName"])["EventSourceMappings"],
        "Alarms": boto3.client("cloudwatch").describe_alarms()["MetricAlarms"],
        "LogGroups": boto3.client("logs").describe_log_groups()["logGroups"],
        "Translated": translated,
    })))


with mock_aws():
    main(*sys.argv[1:])
