package access

import (
	"cmp"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
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
)

const sessionCookie = "curlctl-console"

// Kubernetes accepts tokens of a cluster. A right must be granted by RBAC to the person and by NATS to
// its user.
type Kubernetes struct {
	tokens authenticationclient.TokenReviewsGetter
	access authorizationclient.SubjectAccessReviewsGetter
	seal   cipher.AEAD
	rights map[Right]bool
	now    func() time.Time

	mu      sync.Mutex
	reviews map[review]reviewed
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

// NewKubernetes returns the access by tokens of a cluster. Sessions end with the process, which has a
// new key each time.
func NewKubernetes(
	ctx context.Context, cluster *rest.Config, conn *natsconn.Connection, now func() time.Time,
) (*Kubernetes, error) {
	seal, err := newSeal()
	if err != nil {
		return nil, fmt.Errorf("make the key of sessions: %w", err)
	}
	tokens, noTokens := authenticationclient.NewForConfig(cluster)
	access, noAccess := authorizationclient.NewForConfig(cluster)
	if err := cmp.Or(noTokens, noAccess); err != nil {
		return nil, fmt.Errorf("use the cluster: %w", err)
	}
	_, rights := natsRights(ctx, conn)
	return &Kubernetes{
		tokens: tokens, access: access, seal: seal, rights: rights, now: now, reviews: map[review]reviewed{},
	}, nil
}

// newSeal returns the encryption of sessions, with a new key.
func newSeal() (cipher.AEAD, error) {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // does not fail
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// Guard implements console.Access.
func (k *Kubernetes) Guard(next http.Handler) http.Handler { return next }

// session is the content of the cookie. It does not have the token.
type session struct {
	User  authenticationv1.UserInfo `json:"user"`
	Until time.Time                 `json:"until"`
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
	text, err := k.encode(session{User: review.Status.User, Until: k.now().Add(sessionTime)})
	if err != nil {
		return nil, err.Error()
	}
	return sessionOf(r, text, int(sessionTime/time.Second)), ""
}

// SignOut returns the cookie that ends a session.
func (k *Kubernetes) SignOut(r *http.Request) *http.Cookie { return sessionOf(r, "", -1) }

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

func (k *Kubernetes) encode(held session) (string, error) {
	text, err := json.Marshal(held)
	if err != nil {
		return "", err
	}
	const most = 3800                          // browsers store 4096 bytes
	sealed := k.seal.Seal(nil, nil, text, nil) //nolint:gosec // G407: the nonce is random
	cookie := base64.RawURLEncoding.EncodeToString(sealed)
	if len(cookie) > most {
		return "", errors.New("this user has too many groups for a cookie")
	}
	return cookie, nil
}

func (k *Kubernetes) decode(cookie string) (session, bool) {
	var held session
	sealed, err := base64.RawURLEncoding.DecodeString(cookie)
	if err != nil {
		return held, false
	}
	text, err := k.seal.Open(nil, nil, sealed, nil)
	if err != nil || json.Unmarshal(text, &held) != nil {
		return held, false
	}
	return held, held.User.Username != "" && k.now().Before(held.Until)
}

// Person implements console.Access.
func (k *Kubernetes) Person(w http.ResponseWriter, r *http.Request) *Person {
	if cookie, err := r.Cookie(sessionCookie); err == nil {
		if held, valid := k.decode(cookie.Value); valid {
			name := held.User.Username
			return &Person{Name: name, OnBehalfOf: name, Until: held.Until, user: held.User}
		}
	}
	if r.Method == http.MethodGet && r.URL.Path != "/live" {
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
