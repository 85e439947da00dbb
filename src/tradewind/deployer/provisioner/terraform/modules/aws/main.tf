# Machines on Amazon EC2: a security group that lets the caller in by SSH and the machines reach each other, and the
# machines. Everything has the run's tags from its create call on.

terraform {
  required_version = ">= 1.3"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 3.39, < 7.0"
    }
  }
}

locals {
  tags = {
    Name              = "tradewind-${var.run_id}"
    tradewind-run     = var.run_id
    tradewind-owner   = var.owner
    tradewind-expires = tostring(var.expires)
    tradewind-created = tostring(var.created)
    tradewind-price   = tostring(var.price_per_hour)
  }
  user_data = templatefile("${path.module}/cloud-init.yaml.tftpl", {
    expires          = var.expires
    lease_seconds    = var.lease_seconds
    install_docker   = var.install_docker
    login_key_public = var.login_key_public
    host_key_private = var.host_key_private
    host_key_public  = var.host_key_public
  })
  image     = var.image != "" ? var.image : data.aws_ami.debian[0].id
  burstable = can(regex("^t[2-9][a-z]*[.]", var.instance_type))
  # Requests for spot machines tag themselves and not the machines: both are told apart by where they are listed.
  machines = var.spot ? [
    for request in aws_spot_instance_request.node : {
      id      = request.spot_instance_id
      public  = request.public_ip
      private = request.private_ip
    }
    ] : [
    for instance in aws_instance.node : {
      id      = instance.id
      public  = instance.public_ip
      private = instance.private_ip
    }
  ]
}

provider "aws" {
  region = var.region

  # With another endpoint (a test's, or a cloud that speaks EC2) there may be no STS and no metadata service.
  skip_credentials_validation = var.endpoint != ""
  skip_requesting_account_id  = var.endpoint != ""
  skip_metadata_api_check     = var.endpoint != ""
  # A mistake should be seen at once, and a retry that nobody sees costs money.
  max_retries = 5

  dynamic "endpoints" {
    for_each = var.endpoint == "" ? [] : [var.endpoint]
    content {
      ec2 = endpoints.value
    }
  }

  default_tags {
    tags = local.tags
  }
}

data "aws_ami" "debian" {
  count       = var.image == "" ? 1 : 0
  most_recent = true
  owners      = var.image_owners

  filter {
    name   = "name"
    values = [replace(var.image_name, "ARCH", var.arch == "arm64" ? "arm64" : "amd64")]
  }
}

data "aws_subnet" "given" {
  count = var.subnet_id == "" ? 0 : 1
  id    = var.subnet_id
}

resource "aws_security_group" "run" {
  name        = "tradewind-${var.run_id}"
  description = "SSH from the caller, and the machines of one run among themselves"
  vpc_id      = var.subnet_id == "" ? null : data.aws_subnet.given[0].vpc_id

  ingress {
    description = "SSH from the caller"
    protocol    = "tcp"
    from_port   = 22
    to_port     = 22
    cidr_blocks = var.caller_cidrs
  }

  ingress {
    description = "The machines of the run"
    protocol    = "-1"
    from_port   = 0
    to_port     = 0
    self        = true
  }

  egress {
    description      = "Anywhere"
    protocol         = "-1"
    from_port        = 0
    to_port          = 0
    cidr_blocks      = ["0.0.0.0/0"]
    ipv6_cidr_blocks = ["::/0"]
  }
}

resource "aws_instance" "node" {
  count = var.spot ? 0 : var.nodes

  ami                                  = local.image
  instance_type                        = var.instance_type
  availability_zone                    = var.zone == "" ? null : var.zone
  subnet_id                            = var.subnet_id == "" ? null : var.subnet_id
  associate_public_ip_address          = var.public_address
  vpc_security_group_ids               = [aws_security_group.run.id]
  iam_instance_profile                 = var.profile == "" ? null : var.profile
  user_data                            = local.user_data
  instance_initiated_shutdown_behavior = "terminate"
  volume_tags                          = local.tags

  metadata_options {
    http_endpoint = "enabled"
    http_tokens   = "required"
    # From a container it is one step further to the credentials of the profile.
    http_put_response_hop_limit = var.profile == "" ? 1 : 2
  }

  # Amazon's default lends burstable machines more CPU than they have, and bills it besides the price of the hour.
  dynamic "credit_specification" {
    for_each = local.burstable && var.cpu_credits != "" ? [var.cpu_credits] : []
    content {
      cpu_credits = credit_specification.value
    }
  }

  root_block_device {
    volume_size           = var.disk_gib
    volume_type           = var.disk_type
    delete_on_termination = true
  }
}

# A spot request can set neither CPU credits nor how the metadata service answers: Amazon's default holds for the first, and
# the second is set when the machines are there. They end when they shut down because the request is for one time.
resource "aws_spot_instance_request" "node" {
  count = var.spot ? var.nodes : 0

  spot_type            = "one-time"
  wait_for_fulfillment = true
  # A request that nobody withdraws does not outlive the lease.
  valid_until = timeadd("1970-01-01T00:00:00Z", "${floor(var.expires)}s")

  ami                         = local.image
  instance_type               = var.instance_type
  availability_zone           = var.zone == "" ? null : var.zone
  subnet_id                   = var.subnet_id == "" ? null : var.subnet_id
  associate_public_ip_address = var.public_address
  vpc_security_group_ids      = [aws_security_group.run.id]
  iam_instance_profile        = var.profile == "" ? null : var.profile
  user_data                   = local.user_data

  root_block_device {
    volume_size           = var.disk_gib
    volume_type           = var.disk_type
    delete_on_termination = true
  }
}
