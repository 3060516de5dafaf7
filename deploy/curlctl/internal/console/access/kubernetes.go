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

// Audience of the tokens: `kubectl create token NAME --audience`.
const Audience = "curl-me-that-console"

// group of the resources of rights. RBAC needs no CustomResourceDefinition for them.
const group = "watch.x-kv8s.io"

// Limits of sessions and reviews.
const (
	sessionTime = time.Hour
	reviewTime  = 30 * time.Second
	maxToken    = 16 << 10
	// mostKept limits the memory of sessions and of reviews. A new one replaces the least recently used.
	mostKept = 10_000
)

const sessionCookie = "curlctl-console"

// Kubernetes accepts tokens of a cluster. A right must be granted by RBAC to the person and by NATS to
// its user.
type Kubernetes struct {
	tokens authenticationclient.TokenReviewsGetter
	access authorizationclient.SubjectAccessReviewsGetter
	rights map[Right]bool
	// reviews are answers by review, and sessions the users by cookie.
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
		tokens: tokens, access: access, rights: rights,
		reviews:  cache.NewLRUExpireCacheWithClock(mostKept, clock(now)),
		sessions: cache.NewLRUExpireCacheWithClock(mostKept, clock(now)),
	}, nil
}

// Guard implements console.Access.
func (k *Kubernetes) Guard(next http.Handler) http.Handler { return next }

// SignIn returns the random cookie of a session for the token of a form, or an error for the person. The
// session does not have the token.
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
	k.sessions.Add(id, review.Status.User, sessionTime)
	return sessionOf(r, id, int(sessionTime/time.Second)), ""
}

// SignOut ends a session, and returns the cookie that replaces its own.
func (k *Kubernetes) SignOut(r *http.Request) *http.Cookie {
	if cookie, err := r.Cookie(sessionCookie); err == nil {
		k.sessions.Remove(cookie.Value)
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
	k.reviews.Add(key, answer.Status.Allowed, reviewTime)
	return answer.Status.Allowed, nil
}
