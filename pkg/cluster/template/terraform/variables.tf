variable "vpc_id" {
  description = "Where everything is. It has DNS support and DNS host names on."
  type        = string
}

variable "subnet_ids" {
  description = "The machines' subnets. They reach Parameter Store, AutoScaling and EC2."
  type        = list(string)
  validation {
    condition     = length(var.subnet_ids) > 0
    error_message = "The machines need a subnet."
  }
}

variable "etcd_subnet_ids" {
  description = "A subnet for each member of etcd, in the document's order; one may be named more than once. Empty where no member has a name: the only one is in the first of subnet_ids, and stays there, since its volume is in that subnet's zone."
  type        = list(string)
  default     = []
}

variable "load_balancer_subnet_ids" {
  description = "The subnets of the load balancer before the API servers, where the document wants one."
  type        = list(string)
  default     = []
}

variable "zone_id" {
  description = "The private zone k8s of the VPC, where another cluster has made it; null makes it."
  type        = string
  default     = null
}

variable "machines" {
  description = "false keeps every group empty: until the zone is prepared and the function that keeps it is there, and before everything is destroyed."
  type        = bool
  default     = false
}

variable "api_cidr" {
  description = "Who else may reach the API servers, as a range of addresses (CIDR); null is nobody."
  type        = string
  default     = null
}

variable "permissions_boundary" {
  description = "The ARN of a permissions boundary for the instance roles; null is none."
  type        = string
  default     = null
}

variable "destroy_records" {
  description = "true lets terraform destroy delete the zone with every record in it, those of other clusters too. Without it, run hardtack stack delete --terraform first: it removes the cluster's records, and says whose others are there."
  type        = bool
  default     = false
}
