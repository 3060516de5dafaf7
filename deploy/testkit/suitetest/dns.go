package suitetest

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"

	"golang.org/x/net/dns/dnsmessage"
)

// DNS is an in-memory DNS server that responds from its table. It is safe for concurrent use.
type DNS struct {
	mu sync.Mutex
	// answers has the addresses of both families of a name for each lookup in turn. The name "" stands
	// for all names without an entry.
	answers map[string][][]string
	asked   map[dnsmessage.Question]int
	// broken is the type of the questions that the server fails to answer.
	broken dnsmessage.Type
}

// NewDNS returns a server that knows no name.
func NewDNS() *DNS {
	return &DNS{answers: map[string][][]string{}, asked: map[dnsmessage.Question]int{}}
}

// Set makes name resolve to addrs.
func (d *DNS) Set(name string, addrs ...string) { d.Rebind(name, addrs) }

// Rebind makes name resolve to each of the lists in turn, one per lookup, and to the last one after
// that.
func (d *DNS) Rebind(name string, lists ...[]string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answers[plain(name)] = lists
	d.broken = 0
	clear(d.asked)
}

// SetOther makes all names without an entry resolve to addrs.
func (d *DNS) SetOther(addrs ...string) { d.Rebind("", addrs) }

// Break makes the server fail for questions of a type, until an answer is set.
func (d *DNS) Break(kind dnsmessage.Type) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.broken = kind
}

// Questions returns the number of questions since the last answer was set, for all names and types.
func (d *DNS) Questions() (total int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, n := range d.asked {
		total += n
	}
	return total
}

// Resolver returns a resolver that asks only this server.
func (d *DNS) Resolver() *net.Resolver {
	return &net.Resolver{
		PreferGo: true,
		Dial: func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			go d.serve(server)
			return client, nil
		},
	}
}

func plain(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// serve responds to one question, as over TCP (RFC 1035 section 4.2.2).
func (d *DNS) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	packet := make([]byte, 4<<10)
	n, err := conn.Read(packet)
	if err != nil || n < 2 {
		return
	}
	if reply, err := d.reply(packet[2:n]); err == nil {
		_, _ = conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...))
	}
}

func (d *DNS) reply(packet []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(packet); err != nil || len(m.Questions) != 1 {
		return nil, errors.New("not one question")
	}
	found, known, broken := d.look(m.Questions[0])
	m.Response, m.RecursionAvailable, m.Answers, m.Additionals = true, true, records(m.Questions[0], found), nil
	switch {
	case broken:
		m.RCode = dnsmessage.RCodeServerFailure
	case !known:
		m.RCode = dnsmessage.RCodeNameError
	}
	return m.Pack()
}

// look finds the answer. It counts questions per family, because one lookup sends one for each.
func (d *DNS) look(q dnsmessage.Question) (addrs []string, known, broken bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	turn := d.asked[q]
	d.asked[q]++
	answers := d.answers[plain(q.Name.String())]
	if len(answers) == 0 {
		answers = d.answers[""]
	}
	if len(answers) == 0 || d.broken == q.Type {
		return nil, false, d.broken == q.Type
	}
	return answers[min(turn, len(answers)-1)], true, false
}

func records(q dnsmessage.Question, addrs []string) (all []dnsmessage.Resource) {
	header := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: dnsmessage.ClassINET, TTL: 1}
	for _, text := range addrs {
		addr := netip.MustParseAddr(text)
		switch {
		case addr.Is4() && q.Type == dnsmessage.TypeA:
			all = append(all, dnsmessage.Resource{Header: header, Body: &dnsmessage.AResource{A: addr.As4()}})
		case addr.Is6() && q.Type == dnsmessage.TypeAAAA:
			all = append(all, dnsmessage.Resource{Header: header, Body: &dnsmessage.AAAAResource{AAAA: addr.As16()}})
		}
	}
	return all
}
