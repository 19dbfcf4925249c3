package egress

import (
	"net/url"
	"slices"
	"strconv"
)

// closedPorts are where no webhook receiver listens, and what does listen may take a
// POST for commands or is the cluster's own. An entry of egress.allow that names one
// opens it.
var closedPorts = []struct {
	first, last uint16
	name        string
}{
	{22, 23, "SSH and Telnet"},
	{25, 25, "mail"},
	{53, 53, "DNS"},
	{465, 465, "mail"},
	{587, 587, "mail"},
	{2375, 2376, "the Docker API"},
	{2379, 2380, "etcd"},
	{6379, 6379, "Redis"},
	{6443, 6443, "the Kubernetes API"},
	{10250, 10250, "the kubelet"},
	{10255, 10259, "the cluster's components"},
	{11211, 11211, "Memcached"},
}

// closedPort says what a port is closed for, empty for an open one.
func closedPort(port uint16) string {
	for _, c := range closedPorts {
		if c.first <= port && port <= c.last {
			return c.name
		}
	}
	if port == 0 {
		return "nothing"
	}
	return ""
}

// portOf is the port that a URL leads to; 0 where it has none that can be.
func portOf(u *url.URL) uint16 {
	switch text := u.Port(); {
	case text != "":
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			return 0
		}
		return uint16(n)
	case u.Scheme == "http":
		return 80
	}
	return 443
}

// deniedPort is the error for a closed port.
func deniedPort(port uint16) *DeniedError {
	return &DeniedError{Range: "port " + strconv.Itoa(int(port)) + ", closed for " + closedPort(port), Remedy: remedyPort}
}

// usablePort says whether a port may lead anywhere: it is open, or an entry names it.
func (r *rules) usablePort(port uint16) bool {
	return closedPort(port) == "" || slices.ContainsFunc(r.allow, func(n network) bool { return slices.Contains(n.ports, port) })
}
