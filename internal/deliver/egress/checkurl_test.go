package egress

import (
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

func TestCheckURLTakes(t *testing.T) {
	for raw, want := range map[string]string{
		"https://hooks.example.com/orders":        "https://hooks.example.com/orders",
		"https://Hooks.Example.COM/Orders":        "https://hooks.example.com/Orders",
		"HTTPS://hooks.example.com":               "https://hooks.example.com",
		"http://hooks.example.com:80":             "http://hooks.example.com:80",
		"https://hooks.example.com:65535/":        "https://hooks.example.com:65535/",
		"https://hooks.example.com./a?b=c&d=%20":  "https://hooks.example.com./a?b=c&d=%20",
		"https://a_b.example.com":                 "https://a_b.example.com",
		"https://192.0.2.1/":                      "https://192.0.2.1/",
		"https://[2001:db8::1]:8443/x":            "https://[2001:db8::1]:8443/x",
		"https://bücher.example/":                 "https://xn--bcher-kva.example/",
		"https://ＨＯＯＫＳ.example：443/":              "",
		"https://ｈooks.example/":                  "https://hooks.example/",
		"https://3com.example/a//b/../c?x=//y@z":  "https://3com.example/a//b/../c?x=//y@z",
		"https://example.com/%e2%82%ac?q=%E2%82%": "",
	} {
		u, err := CheckURL(raw)
		switch {
		case want == "" && err == nil:
			t.Errorf("CheckURL(%q) is taken as %q", raw, u)
		case want != "" && err != nil:
			t.Errorf("CheckURL(%q): %v", raw, err)
		case want != "" && u.String() != want:
			t.Errorf("CheckURL(%q) = %q, want %q", raw, u, want)
		}
	}
}

// case SSR-09, and the rest of facts on URL parsing
func TestCheckURLRefuses(t *testing.T) {
	for raw, want := range map[string]error{
		`http://169.254.169.254\@good.example/`:  errSpace,
		"http:127.0.0.1/":                        errScheme,
		"http://good.example:80@127.0.0.1/":      errUser,
		"http://good.example#@127.0.0.1/":        errFragment,
		"http://x:99999/":                        errPort,
		"http://x:65536/":                        errPort,
		"http://x:0/":                            errPort,
		"http://x:080/":                          errPort,
		"http://x:/":                             errPort,
		"http://x:-1/":                           errPort,
		"http://x:8a/":                           errPort,
		"http://x:99999999999999999999/":         errPort,
		"gopher://good.example":                  errScheme,
		"file:///etc/passwd":                     errScheme,
		"http://[example.com]/":                  errHost,
		"http://[::1/":                           errHost,
		"http://[127.0.0.1]/":                    errHost,
		"http://[fe80::1%25eth0]/":               errZone,
		"http://":                                errHost,
		"http:///path":                           errHost,
		"http://?q":                              errHost,
		"http://:80/":                            errHost,
		"http://./":                              errHost,
		"http://a..b/":                           errHost,
		"http://-a.example/":                     errHost,
		"http://a b/":                            errSpace,
		"http://a/\t":                            errSpace,
		"http://a/\r\nX-Evil: 1":                 errSpace,
		"http://a/\x00":                          errSpace,
		"http://a/\x7f":                          errSpace,
		"http://a%00b/":                          errHost,
		"http://%61.example/":                    errHost,
		"http://a/%zz":                           errPercent,
		"http://a/%2":                            errPercent,
		"http://a/?%":                            errPercent,
		"http://a/é":                             errASCII,
		"http://a/?é":                            errASCII,
		"http://user@a/":                         errUser,
		"http://user:secret@a/":                  errUser,
		"http://a/#":                             errFragment,
		"http://a,b/":                            errHost,
		"//a/":                                   errScheme,
		"/a":                                     errScheme,
		"a":                                      errScheme,
		"":                                       errScheme,
		" https://a/":                            errSpace,
		"https://a/" + strings.Repeat("a", 2048): errLong,
		"https://" + strings.Repeat("a", 64) + "/": errHost,
	} {
		u, err := CheckURL(raw)
		if err != want {
			t.Errorf("CheckURL(%q) = %v, %v, want %v", raw, u, err, want)
		}
	}
}

// case SSR-01
func TestOddlyWrittenAddressesAreRefusedOrDenied(t *testing.T) {
	for _, host := range []string{
		"127.1", "0", "2130706433", "0x7f000001", "0177.0.0.1", "127。0。0。1", "①②⑦.⓪.⓪.①",
		"0x7f.1", "017700000001", "127.0.0.1.", "012.1.2.3", "3232235521", "0X7F.0.0.1", "127.0.0.0x1", "0x", "1.2.3.4.5", "127.0.0.1",
	} {
		u, err := CheckURL("http://" + host + "/")
		if err == nil {
			err = viewOf(Policy{AllowHTTP: true}).CheckURL(u)
		}
		if err == nil {
			t.Errorf("%q is taken as %q", host, u.Host)
		}
	}
}

func TestPolicyChecksTheScheme(t *testing.T) {
	plain, _ := CheckURL("http://hooks.example.com/?token=hush")
	safe, _ := CheckURL("https://hooks.example.com/")
	if err := viewOf(Policy{}).CheckURL(plain); err != errHTTP || strings.Contains(err.Error(), "hush") {
		t.Errorf("http without allowHTTP: %v", err)
	}
	for _, p := range []Policy{{}, {AllowHTTP: true}} {
		if err := viewOf(p).CheckURL(safe); err != nil {
			t.Errorf("https: %v", err)
		}
	}
	if err := viewOf(Policy{AllowHTTP: true}).CheckURL(plain); err != nil {
		t.Errorf("http with allowHTTP: %v", err)
	}
	if err := viewOf(Policy{AllowHTTP: true}).CheckURL(&url.URL{Scheme: "ftp", Host: "a"}); err != errScheme {
		t.Errorf("ftp: %v", err)
	}
}

func FuzzCheckURL(f *testing.F) {
	for _, s := range []string{"https://hooks.example.com:443/a?b=c", "http://127。0。0。1/", "http://[::ffff:1.2.3.4]:80/", `http://a\@b/`, "http://x:/", "http://①②⑦.⓪.⓪.①/", "https://xn--bcher-kva.example/", "http://0x7f.1/%2e"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := CheckURL(raw)
		if err != nil {
			if len(raw) > 12 && strings.Contains(err.Error(), raw) {
				t.Errorf("the error quotes the URL: %v", err)
			}
			return
		}
		if (u.Scheme != "http" && u.Scheme != "https") || u.User != nil || u.Fragment != "" || u.Opaque != "" || u.Hostname() == "" || !ascii(u.Host) {
			t.Errorf("CheckURL(%q) = %#v", raw, u)
		}
		again, err := CheckURL(u.String())
		if err != nil || again.String() != u.String() {
			t.Errorf("CheckURL(%q) gives %q, which reads as %q, %v", raw, u, again, err)
		}
		if _, err := netip.ParseAddr(u.Hostname()); err != nil && endsInNumber(u.Hostname()) {
			t.Errorf("CheckURL(%q) gives the host %q", raw, u.Host)
		}
	})
}
