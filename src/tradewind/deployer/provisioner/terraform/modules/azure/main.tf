# Machines on Azure: a resource group for the run, so that all of it goes as a whole, with a network of its own where no
# subnet is given, a security group, and the machines. Everything has the run's tags from its create call on.

terraform {
  required_version = ">= 1.3"
  required_providers {
    azurerm = {
      source  = "hashicorp/azurerm"
      version = ">= 4.20, < 5.0" # earlier ones take keys of RSA alone
    }
  }
}

locals {
  tags = {
    tradewind-run     = var.run_id
    tradewind-owner   = var.owner
    tradewind-expires = tostring(floor(var.expires))
    tradewind-created = tostring(var.created)
    tradewind-price   = tostring(var.price_per_hour)
  }
  name = substr("tradewind-${replace(var.run_id, "/[^A-Za-z0-9-]/", "-")}", 0, 60)
  user_data = templatefile("${path.module}/cloud-init.yaml.tftpl", {
    expires          = var.expires
    lease_seconds    = var.lease_seconds
    install_docker   = var.install_docker
    login_key_public = var.login_key_public
    host_key_private = var.host_key_private
    host_key_public  = var.host_key_public
  })
  # Sizes that start images of the first generation alone; those are named without a suffix.
  first = can(regex("^(Basic_A\\d+|Standard_(A\\d+m?(_v2)?|D\\d+(_v[23])?|E\\d+i?(_v3)?|[FG]\\d+|H\\d+m?r?|N[CV]\\d+r?))$", var.instance_type))
  named = local.first ? replace(var.image_name, "-ARCH", "") : replace(var.image_name, "ARCH", var.arch == "arm64" ? "arm64" : "gen2")
  image = var.image != "" ? var.image : local.named
  # An id of an image begins with a slash; anything else is publisher:offer:sku:version.
  by_id = startswith(local.image, "/")
  parts = local.by_id ? ["", "", "", ""] : split(":", local.image)
}

provider "azurerm" {
  subscription_id = var.subscription_id == "" ? null : var.subscription_id

  features {
    resource_group {
      prevent_deletion_if_contains_resources = false
    }
    virtual_machine {
      delete_os_disk_on_deletion = true
    }
  }
}

resource "azurerm_resource_group" "run" {
  name     = local.name
  location = var.region
  tags     = local.tags
}

resource "azurerm_virtual_network" "run" {
  count = var.vnet_subnet_id == "" ? 1 : 0

  name                = local.name
  resource_group_name = azurerm_resource_group.run.name
  location            = azurerm_resource_group.run.location
  address_space       = [var.address_space]
  tags                = local.tags
}

resource "azurerm_subnet" "run" {
  count = var.vnet_subnet_id == "" ? 1 : 0

  name                 = local.name
  resource_group_name  = azurerm_resource_group.run.name
  virtual_network_name = azurerm_virtual_network.run[0].name
  address_prefixes     = [cidrsubnet(var.address_space, 8, 0)]
}

# Azure itself lets the machines of a network reach each other, and nobody else in.
resource "azurerm_network_security_group" "run" {
  name                = local.name
  resource_group_name = azurerm_resource_group.run.name
  location            = azurerm_resource_group.run.location
  tags                = local.tags

  security_rule {
    name                       = "ssh-from-the-caller"
    priority                   = 100
    direction                  = "Inbound"
    access                     = "Allow"
    protocol                   = "Tcp"
    source_port_range          = "*"
    destination_port_range     = "22"
    source_address_prefixes    = var.caller_cidrs
    destination_address_prefix = "*"
  }
}

# Without a zone an address fits machines of any zone. With one it would be replaced when the next zone is tried, and Azure
# does not delete it while an interface has it.
resource "azurerm_public_ip" "node" {
  count = var.public_address ? var.nodes : 0

  name                = "${local.name}-${count.index}"
  resource_group_name = azurerm_resource_group.run.name
  location            = azurerm_resource_group.run.location
  allocation_method   = "Static"
  sku                 = "Standard"
  tags                = local.tags
}

resource "azurerm_network_interface" "node" {
  count = var.nodes

  name                = "${local.name}-${count.index}"
  resource_group_name = azurerm_resource_group.run.name
  location            = azurerm_resource_group.run.location
  tags                = local.tags

  ip_configuration {
    name                          = "main"
    subnet_id                     = var.vnet_subnet_id == "" ? azurerm_subnet.run[0].id : var.vnet_subnet_id
    private_ip_address_allocation = "Dynamic"
    public_ip_address_id          = var.public_address ? azurerm_public_ip.node[count.index].id : null
  }
}

resource "azurerm_network_interface_security_group_association" "node" {
  count = var.nodes

  network_interface_id      = azurerm_network_interface.node[count.index].id
  network_security_group_id = azurerm_network_security_group.run.id
}

resource "azurerm_linux_virtual_machine" "node" {
  count = var.nodes

  name                  = "${local.name}-${count.index}"
  computer_name         = "node-${count.index}"
  resource_group_name   = azurerm_resource_group.run.name
  location              = azurerm_resource_group.run.location
  zone                  = var.zone == "" ? null : var.zone
  size                  = var.instance_type
  network_interface_ids = [azurerm_network_interface.node[count.index].id]
  admin_username        = "machine"
  custom_data           = base64encode(local.user_data)
  priority              = var.spot ? "Spot" : "Regular"
  eviction_policy       = var.spot ? "Delete" : null
  max_bid_price         = var.spot ? -1 : null
  source_image_id       = local.by_id ? local.image : null
  tags                  = local.tags

  admin_ssh_key {
    username   = "machine"
    public_key = var.login_key_public
  }

  os_disk {
    caching              = "ReadWrite"
    storage_account_type = var.disk_type
    disk_size_gb         = var.disk_gib
  }

  dynamic "source_image_reference" {
    for_each = local.by_id ? [] : [local.parts]
    content {
      publisher = source_image_reference.value[0]
      offer     = source_image_reference.value[1]
      sku       = source_image_reference.value[2]
      version   = source_image_reference.value[3]
    }
  }

  # Nothing is reachable before the security group is on its interface.
  depends_on = [azurerm_network_interface_security_group_association.node]
}

# A machine that turns itself off is still paid for until Azure deallocates it. Azure's own clock does that once a day,
# which is the end of the lease only where that is less than a day away.
resource "azurerm_dev_test_global_vm_shutdown_schedule" "node" {
  count = var.lease_seconds < 82800 ? var.nodes : 0

  virtual_machine_id    = azurerm_linux_virtual_machine.node[count.index].id
  location              = azurerm_resource_group.run.location
  enabled               = true
  daily_recurrence_time = formatdate("hhmm", timeadd("1970-01-01T00:00:00Z", "${floor(var.expires)}s"))
  timezone              = "UTC"
  tags                  = local.tags

  notification_settings {
    enabled = false
  }
}
