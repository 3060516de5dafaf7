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
	"github.com/nats-io/nkeys"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

// byJWT is the shipped configuration with JWTs instead of accounts.conf.
var byJWT = form{files: shippedFiles, config: "nats.conf", servers: 1, jwt: signed}

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
func (u configuredUser) named(name string) jwt.Permission {
	by := u.Permissions.Publish
	by.Allow = slices.Clone(by.Allow)
	for i, subject := range by.Allow {
		by.Allow[i] = strings.Replace(subject, u.NKey, name, 1)
	}
	return by
}

type imported struct {
	Account string      `json:"account"`
	Subject jwt.Subject `json:"subject"`
}

// signed replaces accounts.conf by equivalent JWTs.
func signed(b *broker) {
	GinkgoHelper()
	file := b.accounts()
	from := parsed(file)
	keys := map[string]nkeys.KeyPair{}
	for name := range from.Accounts {
		keys[name] = suitetest.Must(nkeys.CreateAccount())
	}
	operator := suitetest.Must(nkeys.CreateOperator())
	var preloaded strings.Builder
	for name, a := range from.Accounts {
		fmt.Fprintf(&preloaded, "  %s: %s\n", public(keys[name]), encoded(a.claims(name, keys), operator))
		for _, u := range a.Users {
			user, identity := jwt.NewUserClaims(u.NKey), b.identity(u.NKey)
			user.Name = identity
			user.Pub, user.Sub = u.named(identity), u.Permissions.Subscribe
			b.credit(identity, encoded(user, keys[name]))
		}
	}
	claims := jwt.NewOperatorClaims(public(operator))
	claims.SystemAccount = public(keys[from.SystemAccount])
	Expect(os.WriteFile(file, fmt.Appendf(nil, "operator: %s\nresolver: MEMORY\nresolver_preload: {\n%s}\n",
		encoded(claims, operator), &preloaded), 0o600)).To(Succeed())
}

// accounts returns the path of accounts.conf.
func (b *broker) accounts() string { return filepath.Join(b.dir, "accounts.conf") }

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

// claims returns the JWT claims of an account. keys has the accounts that it imports from.
func (a configuredAccount) claims(name string, keys map[string]nkeys.KeyPair) *jwt.AccountClaims {
	GinkgoHelper()
	claims := jwt.NewAccountClaims(public(keys[name]))
	claims.Name = name
	if a.JetStream.MaxFile != 0 {
		claims.Limits.JetStreamLimits = jwt.JetStreamLimits{
			MemoryStorage: a.JetStream.MaxMemory, DiskStorage: a.JetStream.MaxFile, Streams: jwt.NoLimit, Consumer: jwt.NoLimit,
		}
	}
	for _, e := range a.Exports {
		if e.Stream != "" {
			claims.Exports.Add(&jwt.Export{Name: string(e.Stream), Subject: e.Stream, Type: jwt.Stream})
			continue
		}
		service := &jwt.Export{Name: string(e.Service), Subject: e.Service, Type: jwt.Service}
		if e.Response == "stream" {
			service.ResponseType = jwt.ResponseTypeStream
		}
		claims.Exports.Add(service)
	}
	for _, i := range a.Imports {
		if i.Stream.Account != "" {
			claims.Imports.Add(&jwt.Import{
				Name: string(i.Stream.Subject), Subject: i.Stream.Subject, LocalSubject: i.To,
				Account: public(keys[i.Stream.Account]), Type: jwt.Stream,
			})
			continue
		}
		claims.Imports.Add(&jwt.Import{
			Name: string(i.Service.Subject), Subject: i.Service.Subject, LocalSubject: jwt.RenamingSubject(i.Service.Subject),
			Account: public(keys[i.Service.Account]), Type: jwt.Service,
		})
	}
	return claims
}

func public(key nkeys.KeyPair) string {
	GinkgoHelper()
	return suitetest.Must(key.PublicKey())
}

// encoded signs claims and fails if nsc would reject them.
func encoded(claims jwt.Claims, by nkeys.KeyPair) string {
	GinkgoHelper()
	found := jwt.CreateValidationResults()
	claims.Validate(found)
	Expect(found.Errors()).To(BeEmpty())
	return suitetest.Must(claims.Encode(by))
}

// specs is the name of the spec's own user.
const specs = "spec"

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

func seedOf(file string) []byte {
	GinkgoHelper()
	return []byte(strings.TrimSpace(read(file)))
}

// credit stores the JWT of an identity.
func (b *broker) credit(identity, token string) {
	GinkgoHelper()
	if identity == specs {
		b.token = token
		return
	}
	text := suitetest.Must(jwt.FormatUserConfig(token, seedOf(b.seed(identity))))
	Expect(os.WriteFile(b.credentials(identity), text, 0o600)).To(Succeed())
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

func (a configuredAccount) commandsOf(name string, text io.Writer) {
	for _, e := range a.Exports {
		switch {
		case e.Stream != "":
			fmt.Fprintf(text, "nsc add export --account %s --subject '%s'\n", name, e.Stream)
		case e.Response == "stream":
			fmt.Fprintf(text, "nsc add export --account %s --service --subject '%s' --response-type Stream\n", name, e.Service)
		default:
			fmt.Fprintf(text, "nsc add export --account %s --service --subject '%s'\n", name, e.Service)
		}
	}
	for _, i := range a.Imports {
		if i.Stream.Account != "" {
			fmt.Fprintf(text, "nsc add import --account %s --src-account %s --remote-subject '%s' --local-subject '%s'\n",
				name, i.Stream.Account, i.Stream.Subject, i.To)
			continue
		}
		fmt.Fprintf(text, "nsc add import --account %s --src-account %s --service --remote-subject '%s'\n", name,
			i.Service.Account, i.Service.Subject)
	}
}

func (u configuredUser) commandOf(account, name string, text io.Writer) {
	fmt.Fprintf(text, "nsc add user --account %s --name %s", account, name)
	for _, subject := range u.named(name).Allow {
		fmt.Fprintf(text, " \\\n  --allow-pub '%s'", subject)
	}
	for _, subject := range u.Permissions.Subscribe.Allow {
		fmt.Fprintf(text, " \\\n  --allow-sub '%s'", subject)
	}
	fmt.Fprintln(text)
}

// shippedCommands is the file with the nsc commands.
const shippedCommands = "../../nats/nsc.sh"

var _ = Describe("The commands in nsc.sh", func() {
	It("create the accounts and users of accounts.conf", func(ctx SpecContext) {
		b := start(ctx, plain)
		commands := parsed(b.accounts()).commands(b)
		if os.Getenv("UPDATE_NSC") != "" {
			head, _, _ := strings.Cut(read(shippedCommands), "\n\n")
			Expect(os.WriteFile(shippedCommands, []byte(head+"\n"+commands), 0o755)).To(Succeed())
		}
		Expect(read(shippedCommands)).To(HaveSuffix("\n" + commands))
	})
})
