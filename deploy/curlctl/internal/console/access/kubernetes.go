package access

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/natsconn"
)

// Audience of the tokens: `kubectl create token NAME --audience`.
const Audience = "curl-me-that-console"

// group of the resources of rights. RBAC needs no CustomResourceDefinition for them.
const group = "watch.x-kv8s.io"

// Limits of sessions and reviews.
const (
	sessionTime = time.Hour
	reviewTime  = 30 * time.Second
	reviewsMost = 10_000
	maxToken    = 16 << 10
	// sessionsMost limits the memory of sessions.
	sessionsMost = 10_000
)

const sessionCookie = "curlctl-console"

// Kubernetes accepts tokens of a cluster. A right must be granted by RBAC to the person and by NATS to
// its user.
type Kubernetes struct {
	tokens authenticationclient.TokenReviewsGetter
	access authorizationclient.SubjectAccessReviewsGetter
	rights map[Right]bool
	now    func() time.Time

	mu       sync.Mutex
	reviews  map[review]reviewed
	sessions map[string]session
}

type review struct {
	person    string
	right     Right
	namespace string
}

type reviewed struct {
	allowed bool
	at      time.Time
}

// NewKubernetes returns the access by tokens of a cluster. Sessions end with the process.
func NewKubernetes(
	ctx context.Context, cluster *rest.Config, conn *natsconn.Connection, now func() time.Time,
) (*Kubernetes, error) {
	tokens, noTokens := authenticationclient.NewForConfig(cluster)
	access, noAccess := authorizationclient.NewForConfig(cluster)
	if err := cmp.Or(noTokens, noAccess); err != nil {
		return nil, fmt.Errorf("use the cluster: %w", err)
	}
	_, rights := natsRights(ctx, conn)
	return &Kubernetes{
		tokens: tokens, access: access, rights: rights, now: now,
		reviews: map[review]reviewed{}, sessions: map[string]session{},
	}, nil
}

// Guard implements console.Access.
func (k *Kubernetes) Guard(next http.Handler) http.Handler { return next }

// session belongs to a random cookie. It does not have the token.
type session struct {
	user  authenticationv1.UserInfo
	until time.Time
}

// SignIn returns the cookie of a session for the token of a form, or an error for the person.
func (k *Kubernetes) SignIn(r *http.Request) (cookie *http.Cookie, wrong string) {
	token := strings.TrimSpace(r.PostFormValue("token"))
	if token == "" || len(token) > maxToken {
		return nil, "Paste a token."
	}
	review, err := k.tokens.TokenReviews().Create(r.Context(), &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{Audience}},
	}, metav1.CreateOptions{})
	switch {
	case err != nil:
		return nil, "The API server could not check the token (" + string(apierrors.ReasonForError(err)) + "). Try again."
	case !review.Status.Authenticated || !slices.Contains(review.Status.Audiences, Audience):
		return nil, "The API server does not accept this token. It must be new and have the audience " + Audience + "."
	}
	id := rand.Text()
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.sessions, func(_ string, s session) bool { return !k.now().Before(s.until) })
	if len(k.sessions) >= sessionsMost {
		return nil, "Too many people are signed in. Try again later."
	}
	k.sessions[id] = session{review.Status.User, k.now().Add(sessionTime)}
	return sessionOf(r, id, int(sessionTime/time.Second)), ""
}

// SignOut ends a session, and returns the cookie that replaces its own.
func (k *Kubernetes) SignOut(r *http.Request) *http.Cookie {
	if cookie, err := r.Cookie(sessionCookie); err == nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.sessions, cookie.Value)
	}
	return sessionOf(r, "", -1)
}

func sessionOf(r *http.Request, text string, age int) *http.Cookie {
	//nolint:gosec // G124: Secure where the browser came by TLS
	return &http.Cookie{
		Name: sessionCookie, Value: text, Path: "/", MaxAge: age, HttpOnly: true, Secure: secure(r),
		SameSite: http.SameSiteStrictMode,
	}
}

// secure reports whether the browser came by TLS, here or at a proxy.
func secure(r *http.Request) bool {
	return r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https"
}

// Person implements console.Access.
func (k *Kubernetes) Person(w http.ResponseWriter, r *http.Request) *Person {
	if cookie, err := r.Cookie(sessionCookie); err == nil {
		k.mu.Lock()
		held, known := k.sessions[cookie.Value]
		k.mu.Unlock()
		if known && k.now().Before(held.until) {
			return &Person{Name: held.user.Username, OnBehalfOf: held.user.Username, user: held.user}
		}
	}
	if r.Method == http.MethodGet {
		http.Redirect(w, r, "/signin", http.StatusSeeOther)
	} else {
		http.Error(w, "Sign in first.", http.StatusUnauthorized)
	}
	return nil
}

// May implements console.Access.
func (k *Kubernetes) May(ctx context.Context, p *Person, right Right, namespace string) (bool, error) {
	if !k.rights[right] {
		return false, nil
	}
	person, err := json.Marshal(p.user)
	if err != nil {
		return false, err
	}
	key := review{string(person), right, namespace}
	k.mu.Lock()
	known, there := k.reviews[key]
	k.mu.Unlock()
	if there && k.now().Sub(known.at) < reviewTime {
		return known.allowed, nil
	}
	extra := map[string]authorizationv1.ExtraValue{}
	for name, values := range p.user.Extra {
		extra[name] = authorizationv1.ExtraValue(values)
	}
	verb, resource, _ := strings.Cut(string(right), " ")
	answer, err := k.access.SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: p.user.Username, UID: p.user.UID, Groups: p.user.Groups, Extra: extra,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: namespace, Verb: verb, Group: group, Resource: resource,
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, &ReviewError{Right: right, Err: err}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.reviews) >= reviewsMost {
		clear(k.reviews)
	}
	k.reviews[key] = reviewed{answer.Status.Allowed, k.now()}
	return answer.Status.Allowed, nil
}
