"""Deploys templates to moto, each into an account of its own, and prints what is there then.

usage: deploy.py CALLS TEMPLATE=MACHINES...
Load balancers are left out: moto makes every one of CloudFormation's an application's, and then refuses its listener.
MACHINES is the parameter of that name. CALLS is a JSON list of [group, action, resource]: of each whose group is there, what
moto's own reading of the group's deployed policy says.
"""
import ast
import json
import os
import sys

REGION = "us-west-2"
os.environ.update(AWS_DEFAULT_REGION=REGION, AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="x")

import boto3
import yaml
from moto import mock_aws
from moto.iam.access_control import IAMPolicy, PermissionResult


def document(policy):
    """CloudFormation in moto stores a policy as Python writes it."""
    return ast.literal_eval(policy) if isinstance(policy, str) else policy


def without_balancers(template):
    left_out = {n for n, r in template["Resources"].items() if r["Type"].startswith("AWS::ElasticLoadBalancingV2::")}
    template["Resources"] = {n: r for n, r in template["Resources"].items() if n not in left_out}
    for r in template["Resources"].values():
        r["Properties"].pop("TargetGroupARNs", None)
    template["Outputs"].pop("LoadBalancerName", None)
    template["Parameters"].pop("LoadBalancerSubnetIds", None)
    return json.dumps(template)


def environment(template):
    """What the stack's owner has already: a VPC with subnets, and a published image."""
    ec2, ssm = boto3.client("ec2"), boto3.client("ssm")
    vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    subnets = [ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.9.{i}.0/24", AvailabilityZone=REGION + zone)["Subnet"]["SubnetId"]
               for i, zone in enumerate("abc")]
    image = ec2.describe_images()["Images"][0]["ImageId"]
    for channel in ("stable", "candidate"):
        ssm.put_parameter(Name=f"/hardtack/{channel}/image-id", Value=image, Type="String", DataType="aws:ec2:image")
    values = {"VpcId": vpc, "SubnetIds": ",".join(subnets), "EtcdSubnetIds": ",".join(subnets), "EtcdZones": ",".join(REGION + zone for zone in "abc"),
              "ApiCidr": "10.0.0.0/8", "PermissionsBoundaryArn": "arn:aws:iam::aws:policy/PowerUserAccess"}
    return image, subnets, {k: v for k, v in values.items() if k in json.loads(template)["Parameters"]}


def groups():
    asg, ec2 = boto3.client("autoscaling"), boto3.client("ec2")
    out = {}
    for g in asg.describe_auto_scaling_groups()["AutoScalingGroups"]:
        lt = g["LaunchTemplate"]
        version = ec2.describe_launch_template_versions(LaunchTemplateId=lt["LaunchTemplateId"], Versions=[str(lt["Version"])])["LaunchTemplateVersions"][0]
        data = version["LaunchTemplateData"]
        profile = boto3.client("iam").get_instance_profile(InstanceProfileName=data["IamInstanceProfile"]["Arn"].split("/")[-1])["InstanceProfile"]
        role = profile["Roles"][0]
        iam = boto3.client("iam")
        out[g["AutoScalingGroupName"]] = {
            "Min": g["MinSize"], "Max": g["MaxSize"], "Desired": g["DesiredCapacity"], "Subnets": g["VPCZoneIdentifier"].split(","),
            "Tags": {t["Key"]: [t["Value"], t["PropagateAtLaunch"]] for t in g["Tags"]},
            "Instances": len(g["Instances"]), "Template": data, "TemplateName": version["LaunchTemplateName"],
            "Boundary": role.get("PermissionsBoundary", {}).get("PermissionsBoundaryArn", ""),
            "Trust": document(role["AssumeRolePolicyDocument"]),
            "Attached": iam.list_attached_role_policies(RoleName=role["RoleName"])["AttachedPolicies"],
            "Policies": [document(iam.get_role_policy(RoleName=role["RoleName"], PolicyName=n)["PolicyDocument"])
                         for n in iam.list_role_policies(RoleName=role["RoleName"])["PolicyNames"]],
        }
    return out


def ingress(vpc):
    """The rules of each security group, by the group's Name."""
    ec2, out = boto3.client("ec2"), {}
    found = [g for g in ec2.describe_security_groups(Filters=[{"Name": "vpc-id", "Values": [vpc]}])["SecurityGroups"] if g["GroupName"] != "default"]
    name = {g["GroupId"]: next(t["Value"] for t in g["Tags"] if t["Key"] == "Name") for g in found}
    for g in found:
        out[name[g["GroupId"]]] = sorted(
            f"{p['IpProtocol']} {p['FromPort']}-{p['ToPort']} from {source}"
            for p in g["IpPermissions"]
            for source in [name[u["GroupId"]] for u in p["UserIdGroupPairs"]] + [r["CidrIp"] for r in p["IpRanges"]])
    return out, {i: n for i, n in name.items()}


def deploy(path, machines, calls):
    with open(path) as f:
        template = without_balancers(yaml.safe_load(f))
    image, subnets, parameters = environment(template)
    parameters["Machines"] = machines
    cfn, route53 = boto3.client("cloudformation"), boto3.client("route53")
    cfn.create_stack(StackName="hardtack", TemplateBody=template, Capabilities=["CAPABILITY_IAM"],
                     Parameters=[{"ParameterKey": k, "ParameterValue": v} for k, v in parameters.items()])
    stack = cfn.describe_stacks(StackName="hardtack")["Stacks"][0]
    outputs = {o["OutputKey"]: o["OutputValue"] for o in stack["Outputs"]}
    zone = route53.get_hosted_zone(Id=outputs["ZoneId"])
    made = groups()
    rules, names = ingress(parameters["VpcId"])
    verdicts = {}
    for group, action, resource in calls:
        if group not in made:
            continue
        said = {IAMPolicy(json.dumps(p)).is_action_permitted(action, resource) for p in made[group]["Policies"]}
        verdicts[" ".join((group, action, resource))] = (PermissionResult.PERMITTED in said and PermissionResult.DENIED not in said)
    return {
        "Status": stack["StackStatus"], "Outputs": outputs, "Image": image, "Subnets": subnets, "Groups": made, "Ingress": rules,
        "SecurityGroups": names, "Verdicts": verdicts,
        # CloudFormation in moto passes over a volume's other properties.
        "Volumes": {t["Value"]: [v["AvailabilityZone"], v["Size"]] for v in boto3.client("ec2").describe_volumes()["Volumes"]
                    for t in v.get("Tags", []) if t["Key"] == "aws:cloudformation:logical-id"},
        "Zone": {"Name": zone["HostedZone"]["Name"], "Private": zone["HostedZone"]["Config"]["PrivateZone"]},
        "VPC": parameters["VpcId"],
        "Records": {r["Name"] + " " + r["Type"]: [v["Value"] for v in r["ResourceRecords"]]
                    for r in route53.list_resource_record_sets(HostedZoneId=outputs["ZoneId"])["ResourceRecordSets"] if r["Type"] not in ("SOA", "NS")},
    }


def main(calls, *deployments):
    out = {}
    for d in deployments:
        path, _, machines = d.partition("=")
        with mock_aws():
            out[d] = deploy(path, machines, json.loads(calls))
    print(json.dumps(out, default=str))


main(*sys.argv[1:])
