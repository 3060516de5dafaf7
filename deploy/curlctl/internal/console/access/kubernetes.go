package access

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/natsconn"
)

// Audience is the required audience of tokens: `kubectl create token NAME --audience`.
const Audience = "curl-me-that-console"

// group is the API group of rights. RBAC needs no CustomResourceDefinition for it.
const group = "watch.x-kv8s.io"

// Limits of sessions and reviews.
const (
	sessionTTL = time.Hour
	reviewTTL  = 30 * time.Second
	maxToken   = 16 << 10
	// maxCached limits the number of sessions, and of reviews. A new one replaces the least recently used.
	maxCached = 10_000
)

const sessionCookie = "curlctl-console"

// Kubernetes accepts tokens of a cluster. A right must be granted to the person by RBAC, and to the console by
// NATS.
type Kubernetes struct {
	tokens authenticationclient.TokenReviewsGetter
	access authorizationclient.SubjectAccessReviewsGetter
	rights map[Right]bool
	// reviews caches whether each review was allowed, and sessions the user of each cookie.
	reviews, sessions *cache.LRUExpireCache
}

type review struct {
	person    string
	right     Right
	namespace string
}

// clock implements cache.Clock.
type clock func() time.Time

// Now implements cache.Clock.
func (c clock) Now() time.Time { return c() }

// NewKubernetes returns access by tokens of a cluster. Sessions end with the process.
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
		tokens: tokens, access: access, rights: rights,
		reviews:  cache.NewLRUExpireCacheWithClock(maxCached, clock(now)),
		sessions: cache.NewLRUExpireCacheWithClock(maxCached, clock(now)),
	}, nil
}

// Guard implements console.Access.
func (k *Kubernetes) Guard(next http.Handler) http.Handler { return next }

// SignIn checks the token of a form, and returns the random cookie of a new session, or a message for the person.
// It does not store the token.
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
	k.sessions.Add(id, review.Status.User, sessionTTL)
	return sessionOf(r, id, int(sessionTTL/time.Second)), ""
}

// SignOut ends a session, and returns a cookie that deletes its cookie.
func (k *Kubernetes) SignOut(r *http.Request) *http.Cookie {
	if cookie, err := r.Cookie(sessionCookie); err == nil {
		k.sessions.Remove(cookie.Value)
	}
	return sessionOf(r, "", -1)
}

func sessionOf(r *http.Request, text string, age int) *http.Cookie {
	//nolint:gosec // G124: Secure is set if the browser uses TLS
	return &http.Cookie{
		Name: sessionCookie, Value: text, Path: "/", MaxAge: age, HttpOnly: true, Secure: secure(r),
		SameSite: http.SameSiteStrictMode,
	}
}

// secure reports whether the browser uses TLS, to the console or to a proxy.
func secure(r *http.Request) bool {
	return r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https"
}

// Person implements console.Access.
func (k *Kubernetes) Person(w http.ResponseWriter, r *http.Request) *Person {
	if cookie, err := r.Cookie(sessionCookie); err == nil {
		held, _ := k.sessions.Get(cookie.Value)
		if user, known := held.(authenticationv1.UserInfo); known {
			return &Person{Name: user.Username, OnBehalfOf: user.Username, user: user}
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
	if allowed, known := k.reviews.Get(key); known {
		return allowed == true, nil
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
	k.reviews.Add(key, answer.Status.Allowed, reviewTTL)
	return answer.Status.Allowed, nil
}
