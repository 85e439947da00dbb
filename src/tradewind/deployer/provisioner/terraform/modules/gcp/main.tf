# Machines on Google Compute Engine, on a network that is there already: firewall rules for this run's machines alone,
# and the machines. Machines and disks have the run's labels from their create call on; rules have no labels, and keep
# the same facts in their description.

terraform {
  required_version = ">= 1.3"
  required_providers {
    google = {
      source  = "hashicorp/google"
      version = ">= 6.0, < 8.0"
    }
  }
}

locals {
  labels = {
    tradewind-run     = substr(replace(lower(var.run_id), "/[^a-z0-9_-]/", "_"), 0, 63)
    tradewind-owner   = substr(replace(lower(var.owner), "/[^a-z0-9_-]/", "_"), 0, 63)
    tradewind-expires = tostring(floor(var.expires))
    tradewind-created = tostring(var.created)
    tradewind-price   = replace(tostring(var.price_per_hour), ".", "_")
  }
  facts   = jsonencode(merge(local.labels, { region = var.region }))
  name    = substr("tradewind-${replace(lower(var.run_id), "/[^a-z0-9-]/", "-")}", 0, 55)
  network = var.subnet_id == "" ? var.network : data.google_compute_subnetwork.given[0].network
  zone    = var.zone != "" ? var.zone : data.google_compute_zones.up[0].names[0]
  user_data = templatefile("${path.module}/cloud-init.yaml.tftpl", {
    expires          = var.expires
    lease_seconds    = var.lease_seconds
    install_docker   = var.install_docker
    login_key_public = var.login_key_public
    host_key_private = var.host_key_private
    host_key_public  = var.host_key_public
  })
  image = var.image != "" ? var.image : replace(var.image_name, "ARCH", var.arch == "arm64" ? "arm64" : "amd64")
  # Newer series take Hyperdisk alone, and older ones do not know it.
  newer     = can(regex("^(a4x?|c4[ad]?|g4|h4d|m4|n4[ad]?|x4)-|^a3-ultragpu-|-metal$", var.instance_type))
  disk_type = var.disk_type != "" ? var.disk_type : local.newer ? "hyperdisk-balanced" : "pd-balanced"
  # E2 machines on demand can only be moved to another host; spot machines, bare metal and those with GPUs can only stop.
  maintenance = startswith(var.instance_type, "e2-") && !var.spot ? "MIGRATE" : "TERMINATE"
}

provider "google" {
  project = var.project == "" ? null : var.project
  region  = var.region
}

data "google_compute_zones" "up" {
  count  = var.zone == "" ? 1 : 0
  region = var.region
  status = "UP"
}

# Rules of another network than the machines' would let nobody in.
data "google_compute_subnetwork" "given" {
  count     = var.subnet_id == "" ? 0 : 1
  self_link = can(regex("/", var.subnet_id)) ? var.subnet_id : null
  name      = can(regex("/", var.subnet_id)) ? null : var.subnet_id
  region    = can(regex("/", var.subnet_id)) ? null : var.region
}

# The default network lets SSH in from everywhere: a rule with a better priority closes it for these machines.
resource "google_compute_firewall" "closed" {
  name          = "${local.name}-closed"
  description   = local.facts
  network       = local.network
  direction     = "INGRESS"
  priority      = 900
  source_ranges = ["0.0.0.0/0"]
  target_tags   = [local.name]

  deny {
    protocol = "all"
  }
}

resource "google_compute_firewall" "ssh" {
  name          = "${local.name}-ssh"
  description   = local.facts
  network       = local.network
  direction     = "INGRESS"
  priority      = 800
  source_ranges = var.caller_cidrs
  target_tags   = [local.name]

  allow {
    protocol = "tcp"
    ports    = ["22"]
  }
}

resource "google_compute_firewall" "among" {
  name        = "${local.name}-among"
  description = local.facts
  network     = local.network
  direction   = "INGRESS"
  priority    = 800
  source_tags = [local.name]
  target_tags = [local.name]

  allow {
    protocol = "all"
  }
}

resource "google_compute_instance" "node" {
  count = var.nodes

  name         = "${local.name}-${count.index}"
  zone         = local.zone
  machine_type = var.instance_type
  labels       = local.labels
  tags         = [local.name]
  metadata = {
    user-data              = local.user_data
    block-project-ssh-keys = "true"
    enable-oslogin         = "FALSE"
  }

  boot_disk {
    auto_delete = true

    initialize_params {
      image  = local.image
      size   = var.disk_gib
      type   = local.disk_type
      labels = local.labels
    }
  }

  network_interface {
    network    = var.subnet_id == "" ? local.network : null
    subnetwork = var.subnet_id == "" ? null : var.subnet_id

    dynamic "access_config" {
      for_each = var.public_address ? [1] : []
      content {}
    }
  }

  # Google itself deletes the machine when its lease ends, whatever became of the system on it.
  scheduling {
    provisioning_model          = var.spot ? "SPOT" : "STANDARD"
    preemptible                 = var.spot
    automatic_restart           = false
    on_host_maintenance         = local.maintenance
    instance_termination_action = "DELETE"

    # Google takes 30 seconds to 120 days.
    max_run_duration {
      seconds = min(max(60, var.lease_seconds), 120 * 86400)
    }
  }

  depends_on = [google_compute_firewall.closed]
}
