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
  description = "The machine image (publisher:offer:sku:version, or an id), or empty for the newest Debian 12"
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

# What may be given under the setting `variables`.

variable "subscription_id" {
  description = "The subscription, or empty for the one of ARM_SUBSCRIPTION_ID"
  type        = string
  default     = ""
}

variable "image_name" {
  description = "The image, where no image is given; ARCH stands for gen2 or arm64, and -ARCH for nothing where a size is of the first generation"
  type        = string
  default     = "Debian:debian-12:12-ARCH:latest"
}

variable "vnet_subnet_id" {
  description = "The id of a subnet that is there already, or empty for a network of the run's own"
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
  default     = "StandardSSD_LRS"
}

variable "address_space" {
  description = "The private addresses of a network of the run's own"
  type        = string
  default     = "10.77.0.0/16"
}
