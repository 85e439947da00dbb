output "machines" {
  description = "The machines: id, the address for the caller, the address for each other, and the login"
  value = [
    for machine in local.machines : {
      id              = machine.id
      address         = var.public_address ? machine.public : machine.private
      private_address = machine.private
      user            = "tradewind"
    }
  ]
}
