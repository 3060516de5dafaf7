package egress

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/kv8s/curl-me-that/proto/weburl"
)

func defaultPolicy(tb testing.TB, cfg Config) *Policy {
	tb.Helper()
	policy, err := newPolicy(cfg, new(dialling))
	if err != nil {
		tb.Fatal(err)
	}
	return policy
}

// isSurelyPrivate is a second opinion that shares no code with the policy.
func isSurelyPrivate(addr netip.Addr) bool {
	addr = addr.Unmap()
	return addr.IsLoopback() || addr.IsPrivate() || addr.IsLinkLocalUnicast() || addr.IsMulticast() ||
		addr.IsUnspecified() || addr.IsInterfaceLocalMulticast() ||
		addr.Is4() && (addr.As4()[0] == 0 || addr.As4()[0] >= 224 || addr.As4()[0] == 100 && addr.As4()[1]&0xc0 == 64)
}

// FuzzURL checks that every other parser reads a URL that passes the default policy in the same way.
func FuzzURL(f *testing.F) {
	content, err := os.ReadFile("testdata/urls.json")
	if err != nil {
		f.Fatal(err)
	}
	var vectors []struct{ URL string }
	if err := json.Unmarshal(content, &vectors); err != nil {
		f.Fatal(err)
	}
	for _, v := range vectors {
		f.Add(v.URL)
	}
	f.Add("http://data.example.com/%2f..%2f?#")
	f.Add("http://[::ffff:0x7f.1]/")
	f.Add("http://a.b.c.xn--p1ai:443/")
	policy := defaultPolicy(f, Config{})
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := ParseURL(raw)
		if err == nil {
			err = policy.CheckURL(u)
		}
		if err != nil {
			var denied *DeniedError
			if !errors.As(err, &denied) || denied.Error() == "" {
				t.Fatalf("%q gives %v", raw, err)
			}
			return
		}
		checkPassed(t, raw, u)
		again, err := ParseURL(u.String())
		if err == nil && again.Host != u.Host {
			t.Fatalf("%q is for host %q, and once more for %q", raw, u.Host, again.Host)
		}
		if err != nil && !errors.Is(err, ErrDenied) {
			t.Fatal(err)
		}
	})
}

func checkPassed(t *testing.T, raw string, u *url.URL) {
	t.Helper()
	if len(raw) > weburl.MaxTargetBytes || u.User != nil || (u.Scheme != "http" && u.Scheme != "https") {
		t.Fatalf("%q passes as %q", raw, u)
	}
	if port := u.Port(); port != "" && !slices.Contains([]string{"80", "443", "8080", "8443"}, port) {
		t.Fatalf("%q passes at port %s", raw, port)
	}
	name := u.Hostname()
	if addr, err := netip.ParseAddr(name); err == nil {
		if isSurelyPrivate(addr) || addr.Zone() != "" {
			t.Fatalf("%q passes", raw)
		}
		return
	}
	if !strings.Contains(name, ".") || endsInNumber.MatchString(name) || net.ParseIP(name) != nil {
		t.Fatalf("%q passes as the name %q", raw, name)
	}
	for _, suffix := range []string{"localhost", ".local", ".internal", ".svc", ".cluster.local"} {
		if strings.HasSuffix(name, suffix) && (suffix[0] == '.' || name == suffix || strings.HasSuffix(name, "."+suffix)) {
			t.Fatalf("%q passes as the name %q", raw, name)
		}
	}
	for _, c := range name {
		if c != '.' && c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			t.Fatalf("%q passes as the name %q", raw, name)
		}
	}
}

// spellings returns an IPv4 address in various spellings: first four that are the address itself,
// then the NAT64 one, then invalid ones.
func spellings(a [4]byte) []string {
	n := uint32(a[0])<<24 | uint32(a[1])<<16 | uint32(a[2])<<8 | uint32(a[3])
	dotted := fmt.Sprintf("%d.%d.%d.%d", a[0], a[1], a[2], a[3])
	hex := fmt.Sprintf("%02x%02x:%02x%02x", a[0], a[1], a[2], a[3])
	inverted := fmt.Sprintf("%02x%02x:%02x%02x", ^a[0], ^a[1], ^a[2], ^a[3])
	return []string{
		dotted, "[::ffff:" + dotted + "]", "[::ffff:" + hex + "]", "[0:0:0:0:0:FFFF:" + strings.ToUpper(hex) + "]",
		"[64:ff9b::" + dotted + "]",
		dotted + ".", fmt.Sprint(n), fmt.Sprintf("0x%x", n), fmt.Sprintf("0X%X", n), fmt.Sprintf("0%o", n),
		fmt.Sprintf("0%o.%d.%d.%d", a[0], a[1], a[2], a[3]),
		fmt.Sprintf("%d.%d.%d.0x%x", a[0], a[1], a[2], a[3]),
		fmt.Sprintf("%d.%d", a[0], n&0xffffff), fmt.Sprintf("%d.%d.%d", a[0], a[1], n&0xffff),
		"[::" + dotted + "]", "[::ffff:0:" + dotted + "]",
		"[64:ff9b:1::" + hex + "]",
		"[2002:" + hex + "::1]", "[2001:0:4136:e378:8000:63bf:" + inverted + "]",
		"[2606:4700::5efe:" + dotted + "]", "[2606:4700::200:5efe:" + hex + "]",
		"[::ffff:" + dotted + "%25eth0]",
	}
}

// FuzzSpelling checks that a denied address is denied in every spelling, and that a denied range
// takes precedence over an allowed one in all of them.
func FuzzSpelling(f *testing.F) {
	for _, seed := range []uint32{
		0x7f000001, 0xa9fea9fe, 0x0a000001, 0xa83f8110, 0x00000000, 0xffffffff, 0x5db8d822,
		0xac100001, 0xc0a80101, 0x64400001,
	} {
		f.Add(seed)
	}
	policy := defaultPolicy(f, Config{})
	f.Fuzz(func(t *testing.T, n uint32) {
		a := [4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}
		addr := netip.AddrFrom4(a)
		closed := defaultPolicy(t, Config{AllowCIDRs: []string{"0.0.0.0/0", "::/0"}, DenyCIDRs: []string{addr.String()}})
		private := policy.checkAddress(target{port: 80}, addr) != nil
		if isSurelyPrivate(addr) && !private {
			t.Fatalf("%s passes", addr)
		}
		for i, host := range spellings(a) {
			u, err := ParseURL("http://" + host + "/")
			if err != nil {
				continue
			}
			if policy.CheckURL(u) == nil && (private || i > 3) {
				t.Fatalf("%s passes as %s", addr, host)
			}
			if i <= 4 && closed.CheckURL(u) == nil {
				t.Fatalf("denied %s passes as %s", addr, host)
			}
		}
	})
}

// FuzzAddress checks that no private address is dialled, whatever a name resolves to.
func FuzzAddress(f *testing.F) {
	for _, seed := range []string{
		"127.0.0.1", "::1", "fe80::1", "64:ff9b::7f00:1", "2606:4700::5efe:7f00:1",
		"::ffff:10.0.0.1", "2606:4700::1",
	} {
		addr := netip.MustParseAddr(seed)
		f.Add(addr.AsSlice())
	}
	policy := defaultPolicy(f, Config{})
	f.Fuzz(func(t *testing.T, bytes []byte) {
		addr, ok := netip.AddrFromSlice(bytes)
		if !ok {
			return
		}
		err := policy.checkAddress(target{port: 80}, addr)
		if err == nil && isSurelyPrivate(addr) {
			t.Fatalf("%s passes", addr)
		}
		if err != nil && !errors.Is(err, ErrDenied) {
			t.Fatal(err)
		}
		if zoned := addr.WithZone("eth0"); zoned.Zone() != "" && policy.checkAddress(target{port: 80}, zoned) == nil {
			t.Fatalf("%s passes", zoned)
		}
	})
}

// FuzzPattern checks that a pattern without a star matches only itself, and that matching never panics.
func FuzzPattern(f *testing.F) {
	f.Add("*.example.com", "data.example.com")
	f.Add("a*b*c", "abc")
	f.Add("**", "")
	f.Fuzz(func(t *testing.T, text, host string) {
		p, err := ParsePattern(text)
		if err != nil {
			return
		}
		if !strings.Contains(string(p), "*") && p.Match(host) != (host == string(p)) {
			t.Fatalf("%q matches %q", p, host)
		}
		if filled := strings.ReplaceAll(string(p), "*", "x.y"); !p.Match(filled) {
			t.Fatalf("%q does not match %q", p, filled)
		}
	})
}
