"""Mends moto where the calls of Terraform's provider do not work. Python runs this before moto's server, which has its directory in PYTHONPATH."""
from moto.ec2.models.launch_templates import LaunchTemplate
from moto.ec2.utils import parse_user_data
from moto.route53.responses import Route53

create_version, get_bool = LaunchTemplate.create_version, Route53._get_bool_param


def version(self, data, description):
    """No machine starts from a second version with user data: they are not decoded, as those of the first version are."""
    if type(data.get("UserData")) in (str, bytes):
        data["UserData"] = parse_user_data(data["UserData"])
    return create_version(self, data, description)


def private(self, name, *default):
    """A zone that is made with a VPC is private (API reference, CreateHostedZone: VPC is of private zones only), whether or not PrivateZone is given."""
    return name == "HostedZoneConfig.PrivateZone" and self._get_param("VPC.VPCId") is not None or get_bool(self, name, *default)


LaunchTemplate.create_version, Route53._get_bool_param = version, private
