package random_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/origin"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/proto/annotation"
)

const (
	// usualObjects and usualTurns are the defaults of PAIR_OBJECTS and PAIR_ROUNDS.
	usualObjects, usualTurns = "40", "6"
	// turnLimit is how long the installations that run may take to follow all edits of a round.
	turnLimit = 60 * time.Second
)

// side is one of two installations.
type side struct {
	// name begins its keys and bodies.
	name, annotation string
	services         []*world.Service
	down             bool
}

// shared is the key that both installations may be asked for.
const shared = "both"

// pair is two installations with the same objects.
type pair struct {
	*world.World
	rng   *rand.Rand
	sides []*side
	// objects, their pages by side and key, and the number of versions that were checked.
	objects []*world.ConfigMap
	pages   []map[string]map[string]*origin.Page
	checked map[string]int
	broken  []*origin.Page
	named   int
}

// turn stops or starts an installation, and edits a quarter of the objects.
func (p *pair) turn(ctx context.Context) {
	GinkgoHelper()
	if s := p.sides[p.rng.IntN(2)]; s.down || !p.sides[0].down && !p.sides[1].down && p.rng.IntN(2) == 0 {
		p.toggle(ctx, s)
	}
	for range len(p.objects) / 4 {
		i := p.rng.IntN(len(p.objects))
		switch p.rng.IntN(6) {
		case 0:
			label := map[bool]string{true: "yes"}[p.objects[i].Get(ctx).Labels[aside] == ""]
			p.objects[i].Label(ctx, aside, label)
		case 1:
			for _, page := range p.pages[i]["A"] {
				p.broken = append(p.broken, page.Fails(http.StatusServiceUnavailable))
			}
		default:
			p.ask(ctx, i, p.sides[p.rng.IntN(2)])
		}
	}
	p.follow(ctx)
}

// ask sets or removes the annotation of one installation.
func (p *pair) ask(ctx context.Context, i int, s *side) {
	GinkgoHelper()
	pages := map[string]*origin.Page{}
	var pairs []string
	for _, key := range []string{s.name + "0", s.name + "1", shared} {
		if p.rng.IntN(2) == 0 {
			p.named++
			pages[key] = p.Origin.Page(fmt.Sprintf("/%s/%d", s.name, p.named)).Says(fmt.Sprintf("%s %d", s.name, p.named))
			pairs = append(pairs, key+"="+pages[key].URL())
		}
	}
	p.pages[i][s.name] = pages
	if len(pairs) == 0 {
		p.objects[i].Unannotate(ctx, s.annotation)
		return
	}
	p.objects[i].Annotate(ctx, s.annotation, strings.Join(pairs, " "))
}

func (p *pair) toggle(ctx context.Context, s *side) {
	GinkgoHelper()
	for _, service := range s.services {
		if s.down {
			service.Restart(ctx)
		} else {
			service.ShouldStop(ctx)
		}
	}
	s.down = !s.down
}

// heal starts everything, and waits until all objects are up to date.
func (p *pair) heal(ctx context.Context) {
	GinkgoHelper()
	for _, s := range p.sides {
		if s.down {
			p.toggle(ctx, s)
		}
	}
	for i, page := range p.broken {
		page.Says(fmt.Sprintf("A again %d", i))
	}
	p.broken = nil
	for _, o := range p.objects {
		o.Label(ctx, aside, "")
	}
	p.follow(ctx)
}

// follow waits until the keys of each running installation are as asked, except those whose page fails.
func (p *pair) follow(ctx context.Context) {
	GinkgoHelper()
	Eventually(ctx, func() (wrong []string) {
		for i, cm := range p.objects {
			object := p.History.Latest(cm.Name)
			for _, s := range p.sides {
				if !s.down && (s.name == "A" || object.Labels[aside] == "") {
					wrong = append(wrong, p.wrong(object, s, p.pages[i])...)
				}
			}
		}
		return wrong
	}).WithTimeout(turnLimit).WithPolling(100*time.Millisecond).Should(BeEmpty(), "keys of running installations")
}

func (p *pair) wrong(object *corev1.ConfigMap, s *side, pages map[string]map[string]*origin.Page) (wrong []string) {
	for _, key := range []string{s.name + "0", s.name + "1", shared} {
		page, value := pages[s.name][key], object.Data[key]
		other := p.sides[0]
		if s == other {
			other = p.sides[1]
		}
		_, contested := pages[other.name][key]
		// Its entry stays as long as its annotation is there and it does not look.
		left := key == shared && len(pages[other.name]) > 0 && (other.down || object.Labels[aside] != "")
		switch {
		case contested, left, slices.Contains(p.broken, page):
		case page == nil && key != shared && value != "", page != nil && !p.served(page, value):
			wrong = append(wrong, object.Name+"/"+key+"="+value)
		}
	}
	return wrong
}

// served reports whether a page ever had this body.
func (p *pair) served(page *origin.Page, body string) bool {
	return p.Origin.Served(page.URL(), []byte(body))
}

// breaches returns the writes of the systems since the last call that removed or changed a value of an installation
// that was asked for it, or that did not run, or that ignored the object.
func (p *pair) breaches() (found []string) {
	for _, life := range p.History.Lives() {
		for n := max(1, p.checked[life.Name]); n < len(life.Versions); n++ {
			before, after := life.Versions[n-1].Object, life.Versions[n].Object
			for _, key := range slices.Sorted(maps.Keys(before.Data)) {
				was, is := before.Data[key], after.Data[key]
				s := p.sides[strings.Index("AB", was[:1])]
				_, present := before.Annotations[s.annotation]
				idle := s.down || s.name == "B" && before.Labels[aside] != ""
				asked := requested(before, s.annotation)[key]
				switch {
				case life.Versions[n].BySpec, was == is:
				case asked && (is == "" || is[:1] != s.name), idle && (present || key != shared):
					found = append(found, fmt.Sprintf("%s version %d: key %s of %s became %q, was %q", life.Name, n, key, s.name, is,
						was))
				}
			}
		}
		p.checked[life.Name] = len(life.Versions)
	}
	return found
}

// aside is the label with which the second installation ignores an object.
const aside = "aside"

var _ = Describe("Two installations that read different annotations of the same objects", func() {
	It("never remove or overwrite a value of the other one", func(ctx SpecContext) {
		seed := world.Number("SEED", usualSeed)
		AddReportEntry("random", ReportEntryVisibilityFailureOrVerbose, fmt.Sprintf("SEED=%d", seed))
		p := &pair{rng: rand.New(rand.NewPCG(seed, 1)), checked: map[string]int{}}
		options := world.Audited(world.Options{})
		// A round removes more keys than users do at once.
		options.Flags[world.Watcher] = append(options.Flags[world.Watcher], "--max-removals=0")
		p.World = env.World(ctx, options)
		DeferCleanup(p.History.AllBySpec)
		first := &side{name: "A", annotation: annotation.DefaultKey}
		for _, name := range world.Services() {
			first.services = append(first.services, p.Service(name))
		}
		const other = "other.example/curl"
		second := p.Beside(ctx, other, "--selector="+aside+"!=yes")
		p.sides = []*side{first, {name: "B", annotation: other, services: second}}
		for i := range world.Number("PAIR_OBJECTS", usualObjects) {
			p.objects = append(p.objects, p.Create(ctx, fmt.Sprintf("pair-%d", i)))
			p.pages = append(p.pages, map[string]map[string]*origin.Page{"A": {}, "B": {}})
		}
		for range world.Number("PAIR_ROUNDS", usualTurns) {
			p.turn(ctx)
			Expect(p.breaches()).To(BeEmpty(), "SEED=%d", seed)
		}
		p.heal(ctx)
		Expect(p.breaches()).To(BeEmpty(), "SEED=%d", seed)
	})
})

// requested returns the keys in an annotation of an object.
func requested(object *corev1.ConfigMap, name string) map[string]bool {
	keys := map[string]bool{}
	for pair := range strings.FieldsSeq(object.Annotations[name]) {
		key, _, _ := strings.Cut(pair, "=")
		keys[key] = true
	}
	return keys
}
