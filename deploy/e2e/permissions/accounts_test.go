package permissions_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/conf"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// grant is a pattern that accounts.conf grants to an identity.
type grant struct{ identity, pattern string }

// granted returns the patterns that identities may publish to. They include imports, because an account needs
// one for each subject that it publishes to.
func (c configured) granted(b *broker) (publish []grant) {
	GinkgoHelper()
	for name, a := range c.Accounts {
		for _, u := range a.Users {
			identity := b.identity(u.NKey)
			if name == c.SystemAccount || identity == specs {
				continue
			}
			for _, subject := range u.Permissions.Publish.Allow {
				publish = append(publish, grant{identity, subject})
			}
			for _, i := range a.Imports {
				if i.Service.Account != "" {
					publish = append(publish, grant{identity, string(i.Service.Subject)})
				}
			}
		}
	}
	return publish
}

// configured is the content of accounts.conf.
type configured struct {
	SystemAccount string                       `json:"system_account"`
	Accounts      map[string]configuredAccount `json:"accounts"`
}

type configuredAccount struct {
	JetStream struct {
		MaxMemory int64 `json:"max_memory"`
		MaxFile   int64 `json:"max_file"`
	} `json:"jetstream"`
	Users   []configuredUser `json:"users"`
	Exports []struct {
		Service  jwt.Subject `json:"service"`
		Stream   jwt.Subject `json:"stream"`
		Response string      `json:"response"`
	} `json:"exports"`
	Imports []struct {
		Service imported            `json:"service"`
		Stream  imported            `json:"stream"`
		To      jwt.RenamingSubject `json:"to"`
	} `json:"imports"`
}

type configuredUser struct {
	NKey        string `json:"nkey"`
	Permissions struct {
		Publish   jwt.Permission `json:"publish"`
		Subscribe jwt.Permission `json:"subscribe"`
	} `json:"permissions"`
}

// named returns the publish permissions of a user whom the server knows by name instead of by key.
func (c configuredUser) named(name string) jwt.Permission {
	by := c.Permissions.Publish
	by.Allow = slices.Clone(by.Allow)
	for i, subject := range by.Allow {
		by.Allow[i] = strings.Replace(subject, c.NKey, name, 1)
	}
	return by
}

// commands returns the nsc commands that create the same accounts and users.
func (c configured) commands(b *broker) string {
	GinkgoHelper()
	var text strings.Builder
	for _, name := range c.sorted() {
		a := c.Accounts[name]
		fmt.Fprintf(&text, "\nnsc add account %s\n", name)
		if a.JetStream.MaxFile != 0 {
			fmt.Fprintf(&text, "nsc edit account %s --js-mem-storage %d --js-disk-storage %d\n", name, a.JetStream.MaxMemory,
				a.JetStream.MaxFile)
		}
		a.commandsOf(name, &text)
		for _, u := range a.Users {
			if identity := b.identity(u.NKey); identity != specs {
				u.commandOf(name, identity, &text)
			}
		}
	}
	return text.String()
}

// sorted returns the names of the accounts, those with exports before those that import them. It leaves out the
// system account, which every operator has.
func (c configured) sorted() []string {
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(c.Accounts)),
		func(name string) bool { return name == c.SystemAccount })
	slices.SortStableFunc(names, func(a, b string) int { return len(c.Accounts[b].Exports) - len(c.Accounts[a].Exports) })
	return names
}

func (c configuredAccount) commandsOf(name string, text io.Writer) {
	for _, e := range c.Exports {
		switch {
		case e.Stream != "":
			fmt.Fprintf(text, "nsc add export --account %s --subject '%s'\n", name, e.Stream)
		case e.Response == "stream":
			fmt.Fprintf(text, "nsc add export --account %s --service --subject '%s' --response-type Stream\n", name, e.Service)
		default:
			fmt.Fprintf(text, "nsc add export --account %s --service --subject '%s'\n", name, e.Service)
		}
	}
	for _, i := range c.Imports {
		if i.Stream.Account != "" {
			fmt.Fprintf(text, "nsc add import --account %s --src-account %s --remote-subject '%s' --local-subject '%s'\n",
				name, i.Stream.Account, i.Stream.Subject, i.To)
			continue
		}
		fmt.Fprintf(text, "nsc add import --account %s --src-account %s --service --remote-subject '%s'\n", name,
			i.Service.Account, i.Service.Subject)
	}
}

func (c configuredUser) commandOf(account, name string, text io.Writer) {
	fmt.Fprintf(text, "nsc add user --account %s --name %s", account, name)
	for _, subject := range c.named(name).Allow {
		fmt.Fprintf(text, " \\\n  --allow-pub '%s'", subject)
	}
	for _, subject := range c.Permissions.Subscribe.Allow {
		fmt.Fprintf(text, " \\\n  --allow-sub '%s'", subject)
	}
	fmt.Fprintln(text)
}

// accounts returns the path of accounts.conf.
func (b *broker) accounts() string { return filepath.Join(b.dir, "accounts.conf") }

// listeners returns the subjects that the server subscribes to in the account of the streams.
func (b *broker) listeners(ctx SpecContext) (all []string) {
	GinkgoHelper()
	var found struct {
		Subscriptions []struct{ Subject string } `json:"subscriptions_list"`
	}
	text := monitored(ctx, b.servers[0].MonitorURL(), "/subsz?subs=1&acc=CURL&limit=1000")
	Expect(json.Unmarshal([]byte(text), &found)).To(Succeed())
	for _, s := range found.Subscriptions {
		// The API has a single subscription, and each grant names one of its requests.
		if s.Subject != "$JS.API.>" {
			all = append(all, s.Subject)
		}
	}
	Expect(all).To(ContainElements("$JS.ACK.CURL_RESULTS.writer.*.*.*.*.*", "curl.want.>"))
	return all
}

// identity returns the identity with a public key.
func (b *broker) identity(nkey string) string {
	GinkgoHelper()
	if nkey == public(b.root) {
		return specs
	}
	seeds := suitetest.Must(filepath.Glob(b.seed("*")))
	for _, file := range seeds {
		if public(suitetest.Must(nkeys.FromSeed(seedOf(file)))) == nkey {
			return strings.TrimSuffix(filepath.Base(file), ".nk")
		}
	}
	Fail("no seed for " + nkey)
	return ""
}

type imported struct {
	Account string      `json:"account"`
	Subject jwt.Subject `json:"subject"`
}

// parsed reads accounts.conf. It fails on settings that JWTs do not support.
func parsed(file string) (c configured) {
	GinkgoHelper()
	fields := suitetest.Must(conf.ParseFile(file))
	text := suitetest.Must(json.Marshal(map[string]any{
		"system_account": fields["system_account"], "accounts": fields["accounts"],
	}))
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	Expect(decoder.Decode(&c)).To(Succeed())
	return c
}

func public(key nkeys.KeyPair) string {
	GinkgoHelper()
	return suitetest.Must(key.PublicKey())
}

// specs is the name of the spec's own user.
const specs = "spec"

func seedOf(file string) []byte {
	GinkgoHelper()
	return []byte(strings.TrimSpace(read(file)))
}

// shippedCommands is the file with the nsc commands.
const shippedCommands = "../../nats/nsc.sh"

var _ = It("Patterns in accounts.conf match one subscription of the server each", func(ctx SpecContext) {
	b := start(ctx, plain)
	suitetest.Must(pipeline.Ensure(ctx, b.jetStream(), pipeline.Topology{HistoryBytes: 16 << 20}))
	publish := parsed(b.accounts()).granted(b)
	Expect(len(publish)).To(BeNumerically(">", 100))
	listeners := b.listeners(ctx)
	for _, p := range publish {
		var reached []string
		for _, subject := range listeners {
			if server.SubjectsCollide(p.pattern, subject) {
				reached = append(reached, subject)
			}
		}
		if strings.ContainsAny(p.pattern, "*>") {
			Expect(reached).To(HaveLen(1), "%s may publish %s", p.identity, p.pattern)
		}
		Expect(len(reached)).To(BeNumerically("<=", 1), "%s may publish %s", p.identity, p.pattern)
	}
})

var _ = It("The commands in nsc.sh create the accounts and users of accounts.conf", func(ctx SpecContext) {
	b := start(ctx, plain)
	commands := parsed(b.accounts()).commands(b)
	if os.Getenv("UPDATE_NSC") != "" {
		head, _, _ := strings.Cut(read(shippedCommands), "\n\n")
		Expect(os.WriteFile(shippedCommands, []byte(head+"\n"+commands), 0o755)).To(Succeed())
	}
	Expect(read(shippedCommands)).To(HaveSuffix("\n" + commands))
})
