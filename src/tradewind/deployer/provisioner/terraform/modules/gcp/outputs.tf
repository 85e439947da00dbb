output "machines" {
  description = "The machines: id, the address for the caller, the address for each other, and the login"
  value = [
    for machine in google_compute_instance.node : {
      id              = machine.name
      address         = var.public_address ? machine.network_interface[0].access_config[0].nat_ip : machine.network_interface[0].network_ip
      private_address = machine.network_interface[0].network_ip
      user            = "tradewind"
    }
  ]
}
