"""The service: people submit requests, watch them, and get the right configuration; REST, XML-RPC and a web page."""
