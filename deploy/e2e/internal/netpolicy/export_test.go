package netpolicy

// Load is for specs that have no cluster.
var Load = load
