package manifests_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

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

// everything renders the chart with all components and the flags.
func everything(ctx context.Context, flags ...string) []object {
	GinkgoHelper()
	return template(ctx, filepath.Join(chart, "ci", "default-values.yaml"), append(flags,
		"--set", "keeper.enabled=true,sidecar.enabled=true,hooks.enabled=true,hooks.secret=hooks",
		"--set", "credentials.namespaces."+team+"[0]=rules-api", "--kube-version", "1.36.0")...)
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
