output "machines" {
  description = "The machines: id, the address for the caller, the address for each other, and the login"
  value = [
    for machine in azurerm_linux_virtual_machine.node : {
      id              = machine.virtual_machine_id
      address         = var.public_address ? machine.public_ip_address : machine.private_ip_address
      private_address = machine.private_ip_address
      user            = "tradewind"
    }
  ]
}
