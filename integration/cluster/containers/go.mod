module nodeagent/integration/cluster/containers

go 1.26.0
