package manifests_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
)

// Files of the project, relative to this folder.
const (
	deploy     = "../../"
	metrics    = deploy + "docs/metrics.md"
	dashboards = deploy + "chart/files/dashboards/curl-me-that.json"
	rules      = deploy + "chart/files/rules/*.yaml"
	production = deploy + "chart/files/rules/production/*.yaml"
	ruleTests  = deploy + "prometheus/tests/*.yaml"
	runbooks   = deploy + "docs/runbooks.md"
)

// runbookURL is the address of the runbooks.
const runbookURL = "https://github.com/kv8s/curl-me-that/blob/main/deploy/docs/runbooks.md#"

// metric has the labels of a metric, with their values. Without values, any value is possible.
type metric struct {
	histogram bool
	labels    map[string][]string
}

// catalogue has all metrics by name.
type catalogue map[string]metric

// everywhere are labels that any series may have.
var everywhere = []string{"__name__", "namespace", "job", "instance"}

// row matches a metric in the list.
var row = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (counter|gauge|histogram)(?:, ([^|]*))? \\|")

// allMetrics returns the metrics of the list, those of every process and of Prometheus, and the recorded series.
func allMetrics(all alerting) catalogue {
	GinkgoHelper()
	c := catalogue{
		"ALERTS": {labels: map[string][]string{"alertname": nil, "alertstate": {"pending", "firing"}, "severity": nil}},
	}
	for _, name := range []string{
		"up", "go_goroutines", "process_cpu_seconds_total", "process_resident_memory_bytes", "process_start_time_seconds",
	} {
		c[name] = metric{}
	}
	for _, cells := range row.FindAllStringSubmatch(string(suitetest.Must(os.ReadFile(metrics))), -1) {
		c[cells[1]] = metric{cells[2] == "histogram", labelsOf(cells[3])}
	}
	Expect(len(c)).To(BeNumerically(">", 60), "metrics in the list")
	for _, r := range all.records {
		c[r.Record] = metric{}
	}
	return c
}

// labelsOf returns the labels in a cell with their values, or without values if the cell describes them in words.
func labelsOf(cell string) map[string][]string {
	all := map[string][]string{}
	for part := range strings.SplitSeq(cell, "<br>") {
		name, values, found := strings.Cut(strings.TrimPrefix(part, "`"), "`: ")
		if !found {
			continue
		}
		all[name] = nil
		if listed, is := strings.CutPrefix(values, "`"); is {
			all[name] = strings.Split(strings.TrimSuffix(listed, "`"), "`, `")
		}
	}
	return all
}

// parsed returns a query of PromQL, in which it replaces the variables of Grafana.
func parsed(query string) parser.Expr {
	GinkgoHelper()
	query = strings.NewReplacer("$__rate_interval", "1m", "$__range", "30m", "$namespace", ".*").Replace(query)
	return suitetest.Must(parser.NewParser(parser.Options{}).ParseExpr(query))
}

// shouldHave expects that a query uses only metrics, labels and values of the catalogue.
func (c catalogue) shouldHave(query, where string) {
	GinkgoHelper()
	for _, selector := range parser.ExtractSelectors(parsed(query)) {
		series := ""
		for _, m := range selector {
			if m.Name == model.MetricNameLabel && m.Type == labels.MatchEqual {
				series = m.Value
			}
		}
		found, known := c[series]
		for _, suffix := range []string{"_bucket", "_count", "_sum"} {
			if name, cut := strings.CutSuffix(series, suffix); cut && c[name].histogram {
				found, known = c[name], true
			}
		}
		Expect(known).To(BeTrue(), "%s: unknown metric %q", where, series)
		for _, m := range selector {
			if slices.Contains(everywhere, m.Name) {
				continue
			}
			Expect(found.labels).To(HaveKey(m.Name), "%s: labels of %s", where, series)
			if values := found.labels[m.Name]; len(values) > 0 {
				Expect(slices.ContainsFunc(values, m.Matches)).To(BeTrue(), "%s: %s of %v in %s", where, m, values, series)
			}
		}
	}
}

// alerting has the recording and the alerting rules.
type alerting struct{ records, alerts []rulefmt.Rule }

// allRules reads all rules, as strictly as Prometheus.
func allRules() (all alerting) {
	GinkgoHelper()
	for _, pattern := range []string{rules, production} {
		paths := suitetest.Must(filepath.Glob(pattern))
		Expect(paths).NotTo(BeEmpty(), pattern)
		for _, path := range paths {
			groups, errs := rulefmt.ParseFile(path, false, model.LegacyValidation, parser.NewParser(parser.Options{}),
				slog.New(slog.DiscardHandler))
			Expect(errs).To(BeEmpty())
			for _, g := range groups.Groups {
				for _, r := range g.Rules {
					if r.Alert != "" {
						all.alerts = append(all.alerts, r)
					} else {
						all.records = append(all.records, r)
					}
				}
			}
		}
	}
	return all
}

// dashboard is the part of a Grafana dashboard that specs check.
type dashboard struct {
	Panels      []panel
	Annotations struct {
		List []struct{ Name, Expr string }
	}
}

type panel struct {
	Type, Title, Description string
	Targets                  []struct {
		Expr, RefID string
		Datasource  struct{ UID string }
	}
	FieldConfig struct{ Defaults struct{ Unit string } }
	GridPos     struct{ H, W, X, Y int }
}

func readDashboard() (d dashboard) {
	GinkgoHelper()
	Expect(json.Unmarshal(suitetest.Must(os.ReadFile(dashboards)), &d)).To(Succeed())
	return d
}

// drawn returns the panels that show data.
func (d dashboard) drawn() []panel {
	return slices.DeleteFunc(d.Panels, func(p panel) bool { return p.Type == "row" || p.Type == "text" })
}

var _ = Describe("The dashboard", func() {
	var d dashboard
	BeforeEach(func() { d = readDashboard() })

	It("queries only existing metrics", func() {
		c := allMetrics(allRules())
		for _, p := range d.drawn() {
			Expect(p.Targets).NotTo(BeEmpty(), p.Title)
			for _, t := range p.Targets {
				c.shouldHave(t.Expr, p.Title)
			}
		}
		for _, a := range d.Annotations.List {
			if a.Expr != "" {
				c.shouldHave(a.Expr, a.Name)
			}
		}
	})

	It("describes each panel, with a unit, from the selected data source", func() {
		seen := map[string]bool{}
		for _, p := range d.drawn() {
			Expect(p.Title).NotTo(BeEmpty())
			Expect(seen[p.Type+p.Title]).To(BeFalse(), "two panels %q", p.Title)
			seen[p.Type+p.Title] = true
			Expect(p.Description).To(HaveSuffix("."), p.Title)
			Expect(p.FieldConfig.Defaults.Unit).NotTo(BeEmpty(), p.Title)
			refs := map[string]bool{}
			for _, t := range p.Targets {
				Expect(refs[t.RefID]).To(BeFalse(), p.Title)
				refs[t.RefID] = true
				Expect(t.Datasource.UID).To(Equal("${datasource}"), p.Title)
			}
		}
	})

	It("derives the interval of each rate from the scrapes or the time range", func() {
		for _, p := range d.drawn() {
			for _, t := range p.Targets {
				for _, function := range []string{"rate(", "increase("} {
					if strings.Contains(t.Expr, function) {
						Expect(t.Expr).To(Or(ContainSubstring("[$__rate_interval]"), ContainSubstring("[$__range]")), p.Title)
					}
				}
			}
		}
	})

	It("has no overlapping panels", func() {
		taken := map[string]string{}
		for _, p := range d.Panels {
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				Expect(x).To(BeNumerically("<", 24), p.Title)
				for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
					cell := fmt.Sprint(x, " ", y)
					Expect(taken[cell]).To(BeEmpty(), "%q and %q overlap", taken[cell], p.Title)
					taken[cell] = p.Title
				}
			}
		}
	})
})

var _ = Describe("The alerting rules", func() {
	It("query only existing metrics", func() {
		all := allRules()
		c := allMetrics(all)
		for _, r := range slices.Concat(all.records, all.alerts) {
			c.shouldHave(r.Expr, r.Alert+r.Record)
		}
	})

	It("give each alert a severity, a summary and a runbook", func() {
		names := map[string]bool{}
		for _, a := range allRules().alerts {
			Expect(names[a.Alert]).To(BeFalse(), "two alerts %s", a.Alert)
			names[a.Alert] = true
			Expect(a.Alert).To(HavePrefix("CurlMeThat"))
			Expect(a.Labels["severity"]).To(BeElementOf("critical", "warning", "info"), a.Alert)
			Expect(a.Annotations["summary"]).NotTo(BeEmpty(), a.Alert)
			Expect(a.Annotations["summary"]).NotTo(HaveSuffix("."), a.Alert)
			Expect(a.Annotations["description"]).To(HaveSuffix("."), a.Alert)
			Expect(a.For).NotTo(BeZero(), "%s fires at the first bad sample", a.Alert)
		}
	})

	It("pass promtool's tests, which fire each alert", func() {
		var tests strings.Builder
		for _, p := range suitetest.Must(filepath.Glob(ruleTests)) {
			tests.Write(suitetest.Must(os.ReadFile(p)))
		}
		for _, a := range allRules().alerts {
			Expect(tests.String()).To(Or(
				ContainSubstring(`{labels: 'ALERTS{alertname="%s", alertstate="firing"`, a.Alert),
				MatchRegexp(`alertname: %s\n +eval_time: \S+\n +exp_alerts:\n +- exp_labels`, a.Alert),
			), a.Alert)
		}
	})
})

// panelName matches the title of a panel in a runbook.
var panelName = regexp.MustCompile(`panel\s\*\*(.+?)\*\*`)

var _ = Describe("The runbooks", func() {
	It("have a section for every alert, and for nothing else", func() {
		text := string(suitetest.Must(os.ReadFile(runbooks)))
		sections := map[string]string{}
		for section := range strings.SplitSeq(text, "\n## ") {
			heading, _, _ := strings.Cut(section, "\n")
			sections[strings.ToLower(heading)] = section
		}
		linked := map[string]bool{}
		for _, a := range allRules().alerts {
			anchor, is := strings.CutPrefix(a.Annotations["runbook_url"], runbookURL)
			Expect(is).To(BeTrue(), a.Alert)
			Expect(sections[anchor]).To(And(ContainSubstring(a.Alert), ContainSubstring("\n**Check:**"),
				ContainSubstring("\n**Fix")), a.Alert)
			linked[anchor] = true
		}
		for heading := range sections {
			if strings.HasPrefix(heading, "curlmethat") {
				Expect(linked).To(HaveKey(heading), "no alert leads to this section")
			}
		}
	})

	It("name existing panels", func() {
		text := string(suitetest.Must(os.ReadFile(runbooks)))
		for _, panel := range panelName.FindAllStringSubmatch(text, -1) {
			Expect(readDashboard().Panels).To(ContainElement(HaveField("Title", panel[1])))
		}
	})
})

// securityPage has the table of each component's permissions.
const securityPage = "../../docs/security.md"

// anyAPIServer replaces the address of the API server in manifests.
const anyAPIServer = "any address at 443 and 6443"

// team is a namespace with its own credentials.
const team = "team-a"

const component = "app.kubernetes.io/component"

// securityRows returns the other cells of that table, by the component in the first cell.
func securityRows() map[string][]string {
	GinkgoHelper()
	text := suitetest.Must(os.ReadFile(securityPage))
	const heading = "| component | rights in Kubernetes | identity in NATS | reaches |\n|---|---|---|---|\n"
	_, table, found := strings.Cut(string(text), heading)
	Expect(found).To(BeTrue(), "the table of components in %s", securityPage)
	rows := map[string][]string{}
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		rows[cells[0]] = cells[1:]
	}
	return rows
}

// rightsOf returns the permissions of service accounts by component: cluster-wide, then in listed namespaces,
// then in the release's namespace.
func rightsOf(objects []object) map[string]string {
	GinkgoHelper()
	rules := map[string][]rbacv1.PolicyRule{}
	for _, o := range objects {
		if kind := o.GetKind(); kind == "ClusterRole" || kind == "Role" {
			rules[kind+"/"+o.GetNamespace()+"/"+o.GetName()] = convert[rbacv1.ClusterRole](o).Rules
		}
	}
	granted := map[string]map[string][]string{} // by component and scope
	for _, o := range objects {
		if kind := o.GetKind(); kind != "ClusterRoleBinding" && kind != "RoleBinding" {
			continue
		}
		binding := convert[rbacv1.ClusterRoleBinding](o)
		Expect(binding.Subjects).To(HaveLen(1))
		role, known := rules[binding.RoleRef.Kind+"/"+o.GetNamespace()+"/"+binding.RoleRef.Name]
		Expect(known).To(BeTrue(), "%s names no role of the chart", o.GetName())
		scope := ""
		switch o.GetNamespace() {
		case team:
			scope = "in listed namespaces "
		case namespace:
			scope = "in its namespace "
		}
		of := strings.TrimPrefix(binding.Subjects[0].Name, "curl-me-that-")
		if granted[of] == nil {
			granted[of] = map[string][]string{}
		}
		granted[of][scope] = append(granted[of][scope], spelled(role)...)
	}
	all := map[string]string{}
	for of, scopes := range granted {
		var parts []string
		for _, scope := range []string{"", "in listed namespaces ", "in its namespace "} {
			if len(scopes[scope]) > 0 {
				parts = append(parts, scope+strings.Join(scopes[scope], ", "))
			}
		}
		all[of] = strings.Join(parts, "; ")
	}
	return all
}

// spelled returns rules in the notation of the table.
func spelled(rules []rbacv1.PolicyRule) (texts []string) {
	for _, r := range rules {
		text := "`" + strings.Join(r.Verbs, ", ") + " " + strings.Join(r.Resources, ", ") + "`"
		switch len(r.ResourceNames) {
		case 0:
		case 1:
			text += " named `" + r.ResourceNames[0] + "`"
		default:
			text += fmt.Sprintf(" of %d names `%s*`", len(r.ResourceNames), prefix(r.ResourceNames))
		}
		texts = append(texts, text)
	}
	return texts
}

// prefix returns the common prefix of texts.
func prefix(texts []string) string {
	least, most := slices.Min(texts), slices.Max(texts)
	n := 0
	for n < len(least) && least[n] == most[n] {
		n++
	}
	return least[:n]
}

// reached returns the destinations that NetworkPolicies allow, by component.
func reached(objects []object) map[string]string {
	GinkgoHelper()
	all := map[string]string{}
	for _, o := range objects {
		if o.GetKind() != "NetworkPolicy" {
			continue
		}
		policy := convert[networkingv1.NetworkPolicy](o)
		Expect(policy.Spec.PolicyTypes).To(ContainElement(networkingv1.PolicyTypeEgress), o.GetName())
		of := policy.Spec.PodSelector.MatchLabels[component]
		if of == "" {
			Expect(policy.Spec.Egress).To(BeEmpty(), "the policy of all pods")
			continue
		}
		var places []string
		for _, rule := range policy.Spec.Egress {
			places = append(places, place(rule))
		}
		slices.Sort(places)
		all[of] = cmp.Or(strings.Join(places, ", "), "nothing")
	}
	return all
}

// place returns the name of a rule's destination.
func place(rule networkingv1.NetworkPolicyEgressRule) string {
	GinkgoHelper()
	var ports []int
	for _, p := range rule.Ports {
		if port := p.Port.IntValue(); !slices.Contains(ports, port) {
			ports = append(ports, port)
		}
	}
	peer := rule.To[0]
	switch at := fmt.Sprint(ports); {
	case peer.PodSelector != nil && at == "[4222]":
		return "NATS"
	case peer.NamespaceSelector != nil && at == "[53 5353]":
		return "name servers"
	case peer.IPBlock != nil && at == "[443 6443]" && peer.IPBlock.CIDR == "10.96.0.1/32":
		return "API server"
	case peer.IPBlock != nil && at == "[443 6443]" && peer.IPBlock.CIDR == "0.0.0.0/0":
		return anyAPIServer
	case peer.IPBlock != nil && at == "[]" && len(peer.IPBlock.Except) > 20:
		return "public addresses"
	}
	Fail(fmt.Sprintf("the suite has no name for this destination: %v", rule))
	return ""
}

// identitiesOf returns the Secrets with NATS seeds that the pods of each component mount.
func identitiesOf(objects []object) map[string]string {
	GinkgoHelper()
	all := map[string]string{}
	for _, pod := range podTemplates(objects) {
		of := pod.Labels[component]
		var found []string
		for _, name := range secrets(pod.Spec) {
			if _, identity, seed := strings.Cut(name, "-nats-"); seed {
				found = append(found, identity)
			}
		}
		all[of] = cmp.Or(strings.Join(found, ", "), "none")
	}
	return all
}

func secrets(pod corev1.PodSpec) (names []string) {
	for _, v := range pod.Volumes {
		if v.Secret != nil {
			names = append(names, v.Secret.SecretName)
		}
		if v.Projected == nil {
			continue
		}
		for _, s := range v.Projected.Sources {
			if s.Secret != nil {
				names = append(names, s.Secret.Name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// everything renders the chart with all components.
func everything(ctx context.Context) []object {
	GinkgoHelper()
	return template(ctx, filepath.Join(chart, "ci", "default-values.yaml"),
		"--set", "keeper.enabled=true,sidecar.enabled=true,hooks.enabled=true,hooks.secret=hooks",
		"--set", "credentials.namespaces."+team+"[0]=rules-api", "--kube-version", "1.36.0")
}

var _ = Describe("The table in the security model", func() {
	It("matches the chart in every cell", func(ctx SpecContext) {
		objects := everything(ctx)
		rights, identities, places := rightsOf(objects), identitiesOf(objects), reached(objects)
		actual := map[string][]string{}
		for of := range identities {
			actual[of] = []string{cmp.Or(rights[of], "nothing"), identities[of], cmp.Or(places[of], "nothing")}
		}
		Expect(securityRows()).To(Equal(actual), "update the table of %s", securityPage)
	})

	It("lists permissions for every pod with a Kubernetes token", func(ctx SpecContext) {
		objects := everything(ctx)
		rights := rightsOf(objects)
		for name, pod := range podTemplates(objects) {
			if rights[pod.Labels[component]] != "" {
				continue
			}
			Expect(pod.Spec.AutomountServiceAccountToken).To(HaveValue(BeFalse()), name)
			for _, v := range pod.Spec.Volumes {
				if v.Projected != nil {
					Expect(v.Projected.Sources).To(HaveEach(HaveField("ServiceAccountToken", BeNil())), name)
				}
			}
		}
	})

	It("covers install.yaml and watchers.yaml, which allow any address as the API server", func() {
		text := suitetest.Must(os.ReadFile(securityPage))
		Expect(string(text)).To(ContainSubstring(
			"In `install.yaml`, `install-small.yaml` and `watchers.yaml` it is " + anyAPIServer))
		rows := securityRows()
		for _, file := range []string{installed, small, watchers} {
			found := reached(rendered[file])
			Expect(found).NotTo(BeEmpty())
			for of, places := range found {
				expected := strings.Split(strings.Replace(rows[of][2], "API server", anyAPIServer, 1), ", ")
				Expect(strings.Split(places, ", ")).To(ConsistOf(expected), "%s in %s", of, file)
			}
		}
	})
})

// ours matches an image of one of our programs.
var ours = regexp.MustCompile(`^ghcr\.io/kv8s/curl-me-that/([a-z]+):`)

var _ = Describe("The programs in the chart", func() {
	DescribeTable("know all their flags", func(ctx SpecContext, name string) {
		for of, pod := range podTemplates(rendered[name]) {
			container := pod.Spec.Containers[0]
			image := ours.FindStringSubmatch(container.Image)
			if image == nil {
				Expect(of).To(HavePrefix("StatefulSet/"), "%s has the image %s", of, container.Image)
				continue
			}
			program := filepath.Join(bin(), image[1])
			Expect(program).To(BeAnExistingFile(), "run `make build`")
			// Flags are parsed in order, and --help exits before any work starts.
			said, err := exec.CommandContext(ctx, program, append(container.Args, "--help")...).CombinedOutput()
			Expect(err).NotTo(HaveOccurred(), "%s: %s", of, said)
		}
	}, values(additional()...))

	It("protect the same namespaces as by default", func() {
		const flag = "--protected-namespaces="
		found := 0
		for of, pod := range podTemplates(rendered["default"]) {
			for _, arg := range pod.Spec.Containers[0].Args {
				if value, ok := strings.CutPrefix(arg, flag); ok {
					Expect(strings.Split(value, ",")).To(Equal(annotation.DefaultProtected()), of)
					found++
				}
			}
		}
		Expect(found).To(Equal(2), "watcher and writer")
	})

	DescribeTable("have exactly the permissions that they were tested with", func(name, namespace string) {
		roles := map[string][]rbacv1.PolicyRule{}
		for _, o := range rendered[name] {
			switch o.GetKind() {
			case "ClusterRole":
				roles[o.GetName()] = convert[rbacv1.ClusterRole](o).Rules
			case "Role":
				if o.GetNamespace() == namespace {
					roles[o.GetName()] = convert[rbacv1.Role](o).Rules
				}
			}
		}
		Expect(roles).To(HaveKeyWithValue("curl-me-that-writer", world.WriterRules()))
		watcher := world.WatcherRules()
		Expect(watcher).To(HaveLen(3))
		Expect(roles).To(HaveKeyWithValue("curl-me-that-watcher", watcher[:2])) // the third is for its Lease
		Expect(roles).NotTo(HaveKey("curl-me-that-fetcher"))
		keeper := world.KeeperRules()
		if name == "keeper" {
			Expect(roles).To(HaveKeyWithValue("curl-me-that-keeper", keeper[:len(keeper)-1])) // the last is for its Lease
		} else {
			Expect(roles).NotTo(HaveKey("curl-me-that-keeper"))
		}
	}, Entry("in all namespaces", "default", "curl-me-that"), Entry("with Watchers", "keeper", "curl-me-that"),
		Entry("in a listed namespace", "namespaced", "team-a"), Entry("in another one", "namespaced", "team-b"))
})

// bin returns the folder of the built programs.
func bin() string {
	if dir := os.Getenv("CURLMETHAT_BIN"); dir != "" {
		return dir
	}
	return filepath.Join("..", "..", "..", "bin")
}
