"""Prepares moto, at AWS_ENDPOINT_URL, for Terraform's module, and looks at what is there.

usage: terraform.py prepare                   prints the VPC, subnets and image that the stack's owner has already
       terraform.py hooks                     prints the hooks of each group
       terraform.py machines                  prints the least and the wanted size of each group, and how many machines it has
       terraform.py record ZONE NAME ADDRESS  writes a record as the DNS function does
"""
import json
import sys

import boto3

REGION = "us-west-2"


def prepare():
    ec2, ssm = boto3.client("ec2", region_name=REGION), boto3.client("ssm", region_name=REGION)
    vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16", AmazonProvidedIpv6CidrBlock=True)["Vpc"]["VpcId"]
    subnets = [ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.9.{i}.0/24", AvailabilityZone=REGION + zone)["Subnet"]["SubnetId"]
               for i, zone in enumerate("abc")]
    image = ec2.describe_images()["Images"][0]["ImageId"]
    ssm.put_parameter(Name="/hardtack/stable/image-id", Value=image, Type="String", DataType="aws:ec2:image")
    group = ec2.create_security_group(GroupName="more", Description="more", VpcId=vpc)["GroupId"]
    return {"vpc": vpc, "subnets": subnets, "image": image, "group": group}


def hooks():
    asg = boto3.client("autoscaling", region_name=REGION)
    return {
        g["AutoScalingGroupName"]: {
            h["LifecycleHookName"]: [h["LifecycleTransition"], h["DefaultResult"], h["HeartbeatTimeout"]]
            for h in asg.describe_lifecycle_hooks(AutoScalingGroupName=g["AutoScalingGroupName"])["LifecycleHooks"]
        }
        for g in asg.describe_auto_scaling_groups()["AutoScalingGroups"]
    }


def machines():
    groups = boto3.client("autoscaling", region_name=REGION).describe_auto_scaling_groups()["AutoScalingGroups"]
    return {g["AutoScalingGroupName"]: [g["MinSize"], g["DesiredCapacity"], len(g["Instances"])] for g in groups}


def record(zone, name, address):
    return boto3.client("route53", region_name=REGION).change_resource_record_sets(HostedZoneId=zone, ChangeBatch={"Changes": [
        {"Action": "UPSERT", "ResourceRecordSet": {"Name": name, "Type": "A", "TTL": 60, "ResourceRecords": [{"Value": address}]}}]})


print(json.dumps({"prepare": prepare, "hooks": hooks, "machines": machines, "record": record}[sys.argv[1]](*sys.argv[2:]), default=str))
