# What Tradewind gives to every module; a folder of your own declares those that it uses.

variable "run_id" {
  description = "The run that the machines are for; a tag of everything that is created"
  type        = string
}

variable "owner" {
  description = "Who pays; a tag of everything that is created"
  type        = string
}

variable "expires" {
  description = "When the lease ends, in seconds since 1970; a tag of everything, and the machines turn themselves off"
  type        = number
}

variable "created" {
  description = "When the machines are asked for, in seconds since 1970; a tag of everything"
  type        = number
}

variable "price_per_hour" {
  description = "What the machines cost together, in USD per hour; a tag of everything"
  type        = number
}

variable "lease_seconds" {
  description = "Seconds until then, from the moment that the machines are asked for"
  type        = number
}

variable "region" {
  description = "Where the machines are made"
  type        = string
}

variable "zone" {
  description = "The zone of the region, or empty for any"
  type        = string
  default     = ""
}

variable "instance_type" {
  description = "The provider's name of the machines"
  type        = string
}

variable "nodes" {
  description = "How many machines"
  type        = number
  default     = 1
}

variable "spot" {
  description = "Ask for capacity that may be taken back"
  type        = bool
  default     = false
}

variable "arch" {
  description = "x86_64 or arm64, for the image"
  type        = string
  default     = "x86_64"
}

variable "disk_gib" {
  description = "Size of each machine's disk, in GiB"
  type        = number
  default     = 30
}

variable "image" {
  description = "The machine image (ami-...), or empty for the newest Debian 12"
  type        = string
  default     = ""
}

variable "caller_cidrs" {
  description = "The addresses that may reach the machines by SSH"
  type        = list(string)
}

variable "login_key_public" {
  description = "The key that the user tradewind logs in with"
  type        = string
}

variable "host_key_private" {
  description = "The machines' host key, so that the caller knows it beforehand"
  type        = string
  sensitive   = true
}

variable "host_key_public" {
  description = "The public half of it"
  type        = string
}

variable "install_docker" {
  description = "Install a container engine"
  type        = bool
  default     = true
}

variable "endpoint" {
  description = "Another address of the EC2 interface, or empty for Amazon's"
  type        = string
  default     = ""
}

# What may be given under the setting `variables`.

variable "image_owners" {
  description = "Whose images are looked through; the default is Debian's account"
  type        = list(string)
  default     = ["136693071363"]
}

variable "image_name" {
  description = "The image's name, where no image is given; ARCH stands for amd64 or arm64"
  type        = string
  default     = "debian-12-ARCH-*"
}

variable "subnet_id" {
  description = "The subnet, or empty for the default one of the zone"
  type        = string
  default     = ""
}

variable "public_address" {
  description = "Give the machines public addresses; without, they are reached by their private ones"
  type        = bool
  default     = true
}

variable "disk_type" {
  description = "The kind of disk"
  type        = string
  default     = "gp3"
}

variable "profile" {
  description = "Name of the instance profile (IAM role) of the machines, or empty for none"
  type        = string
  default     = ""
}

variable "cpu_credits" {
  description = "For burstable machines: standard, unlimited (CPU beyond their share is billed besides), or empty for the account's default"
  type        = string
  default     = "standard"
}
