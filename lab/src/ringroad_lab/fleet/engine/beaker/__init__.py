"""The Beaker engine: job XML, the hub's XML-RPC, and the results of a job."""
