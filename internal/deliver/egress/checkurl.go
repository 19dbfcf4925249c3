package egress

import (
	"errors"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/idna"
)

// maxURL is the longest URL in bytes.
const maxURL = 2048

// What is wrong with a URL. None of these holds any of it: query strings hold
// tokens.
var (
	errLong      = errors.New("url must be at most 2048 characters long")
	errScheme    = errors.New("url must begin with https:// or http://")
	errHTTP      = errors.New("url must use https: the pool's egress.allowHTTP is not set")
	errSpace     = errors.New("url must not hold spaces, control characters or backslashes")
	errASCII     = errors.New("url must percent-encode characters outside ASCII behind the host")
	errPercent   = errors.New("url must use % only in encodings such as %20; write a plain percent sign as %25")
	errUser      = errors.New("url must not hold a user name or password; remove everything up to and including the @")
	errFragment  = errors.New("url must not have a fragment; remove everything from the # on")
	errHost      = errors.New("url must name a host: a DNS name or an IP address, IPv6 in brackets")
	errNumeric   = errors.New("url must write an IPv4 address as four decimal numbers, such as 192.0.2.1")
	errZone      = errors.New("url must not name a network interface in its address")
	errPort      = errors.New("url must have a port from 1 to 65535 after the colon, or no colon")
	errMalformed = errors.New("url can't be read")
)

// CheckURL reads the URL of an endpoint: absolute, http or https, a host, no
// user, no fragment, and nothing that two programs might read in two ways. The
// URL it gives is the one to send to; its host is in lower case and, for an
// international name, in its ASCII form (UTS #46 lookup mapping). Whether the
// destination is allowed is a Policy's matter. Errors are plain words for a
// condition's message, and hold nothing of the URL.
func CheckURL(raw string) (*url.URL, error) {
	if err := checkCharacters(raw); err != nil {
		return nil, err
	}
	scheme, rest, ok := strings.Cut(raw, "://")
	if s := strings.ToLower(scheme); !ok || (s != "http" && s != "https") {
		return nil, errScheme
	}
	authority := rest
	if end := strings.IndexAny(rest, "/?"); end >= 0 {
		authority = rest[:end]
	}
	if !ascii(rest[len(authority):]) {
		return nil, errASCII
	}
	switch {
	case strings.Contains(authority, "@"):
		return nil, errUser
	case strings.Contains(authority, "%"):
		if strings.HasPrefix(authority, "[") {
			return nil, errZone
		}
		return nil, errHost
	}
	u, err := url.Parse(raw)
	if err != nil || u.Opaque != "" {
		return nil, errURL(authority)
	}
	if err := checkPort(u); err != nil {
		return nil, err
	}
	host, err := checkHost(u)
	if err != nil {
		return nil, err
	}
	if port := u.Port(); port != "" {
		host += ":" + port
	}
	u.Host = host
	return u, nil
}

// checkCharacters refuses what some parsers skip, cut or turn into something else.
func checkCharacters(raw string) error {
	if len(raw) > maxURL {
		return errLong
	}
	for i := range len(raw) {
		switch c := raw[i]; {
		case c <= ' ', c == 0x7f, c == '\\':
			return errSpace
		case c == '#':
			return errFragment
		case c == '%' && (i+2 >= len(raw) || !isHex(raw[i+1]) || !isHex(raw[i+2])):
			return errPercent
		}
	}
	return nil
}

// errURL guesses what url.Parse didn't like. Its own error quotes the URL.
func errURL(authority string) error {
	if i := strings.LastIndexByte(authority, ':'); i > strings.LastIndexByte(authority, ']') {
		if _, err := strconv.ParseUint(authority[i+1:], 10, 64); err != nil {
			return errPort
		}
	}
	if strings.ContainsAny(authority, "[]") || authority == "" {
		return errHost
	}
	return errMalformed
}

// checkPort takes no port, or 1 to 65535 without leading zeros; url.Parse takes
// an empty one and any number.
func checkPort(u *url.URL) error {
	port := u.Port()
	if port == "" {
		if strings.HasSuffix(u.Host, ":") {
			return errPort
		}
		return nil
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 || port[0] == '0' {
		return errPort
	}
	return nil
}

// checkHost gives the host as it is to be dialled, IPv6 in brackets.
func checkHost(u *url.URL) (string, error) {
	host := u.Hostname()
	if strings.HasPrefix(u.Host, "[") {
		addr, err := netip.ParseAddr(host)
		switch {
		case err != nil || !addr.Is6():
			return "", errHost
		case addr.Zone() != "":
			return "", errZone
		}
		return "[" + addr.String() + "]", nil
	}
	if !ascii(host) {
		mapped, err := idna.Lookup.ToASCII(host)
		if err != nil {
			return "", errHost
		}
		host = mapped
	}
	host = strings.ToLower(host)
	if !isName(host) {
		return "", errHost
	}
	if endsInNumber(host) {
		if addr, err := netip.ParseAddr(host); err != nil || !addr.Is4() {
			return "", errNumeric
		}
	}
	return host, nil
}

// isName takes what DNS takes, underscores too, with at most one dot at the end.
func isName(host string) bool {
	host = strings.TrimSuffix(host, ".")
	if host == "" || len(host) > 253 {
		return false
	}
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for i := range len(label) {
			c := label[i]
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				return false
			}
		}
	}
	return true
}

// endsInNumber finds hosts that many programs read as IPv4 addresses, such as
// 127.1, 2130706433 and 0x7f000001 (WHATWG URL, "ends in a number checker").
func endsInNumber(host string) bool {
	host = strings.TrimSuffix(host, ".")
	last := host[strings.LastIndexByte(host, '.')+1:]
	if hex, ok := strings.CutPrefix(last, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(last, "0123456789") == ""
}

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}
