package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/process"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process/kube"
	"github.com/kv8s/curl-me-that/proto/signature"
)

// startTimeout and stopTimeout limit the start and the stop of a program.
const (
	startTimeout = 30 * time.Second
	stopTimeout  = 30 * time.Second
)

// system is NATS and some services, each as a process.
type system struct {
	bin, dir string
	ports    process.Ports
	nats     string
	programs []*process.Process
	// signer and verifier are the flags for the signatures of wants.
	signer, verifier string
	// js is a client of NATS, and epoch the epoch of CURL_REQUESTS.
	js    jetstream.JetStream
	epoch int64
}

// init starts NATS and creates the streams.
func (s *system) init(ctx context.Context, bin string) {
	s.bin = bin
	s.dir = must(os.MkdirTemp("", "curl-me-that-bench-"))
	s.startNATS(ctx)
	nc := must(nats.Connect(s.nats, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond)))
	s.js = must(jetstream.New(nc))
	s.epoch = must(pipeline.Ensure(ctx, s.js, pipeline.Topology{}))
	seed, keys, err := signature.WriteFiles(s.dir)
	check(err)
	s.signer, s.verifier = "--signing-key="+seed, "--trusted-keys="+keys
}

// startNATS starts the version of NATS in go.mod.
func (s *system) startNATS(ctx context.Context) {
	path := must(filepath.Abs(filepath.Join(".cache", "bench", "nats-server")))
	build := exec.CommandContext(ctx, "go", "build", "-o", path, "github.com/nats-io/nats-server/v2")
	if text, err := build.CombinedOutput(); err != nil {
		check(fmt.Errorf("build nats-server: %w: %s", err, text))
	}
	client, monitor := must(s.ports.Free()), must(s.ports.Free())
	file := filepath.Join(s.dir, "nats.conf")
	config := fmt.Sprintf("listen: %q\nhttp: %q\nmax_payload: 2MB\njetstream { store_dir: %q }\n", client, monitor,
		filepath.Join(s.dir, "streams"))
	check(os.WriteFile(file, []byte(config), 0o600))
	s.nats = "nats://" + client
	s.start(ctx, "nats", path, "http://"+monitor+"/healthz", "--config", file)
}

// start runs a program and waits until it is ready. The program inherits the environment, so that
// it can be tuned.
func (s *system) start(ctx context.Context, name, path, health string, args ...string) {
	p := must(process.Start(process.Program{Name: name, Path: path, Args: args, Health: health, Env: os.Environ()}))
	s.programs = append(s.programs, p)
	awaitReady(ctx, p)
}

// service starts a watcher, fetcher or writer.
func (s *system) service(ctx context.Context, name string, args ...string) {
	address := must(s.ports.Free())
	args = append([]string{"--nats-url=" + s.nats, "--listen=" + address}, args...)
	s.start(ctx, name, filepath.Join(s.bin, name), "http://"+address+"/readyz", args...)
}

// fetcher starts a fetcher that may connect to this machine.
func (s *system) fetcher(ctx context.Context, args ...string) {
	s.service(ctx, "fetcher", append(args, process.AllowLoopback)...)
}

func awaitReady(ctx context.Context, p *process.Process) {
	mustAwait(ctx, p.Name+" is ready", startTimeout, func() bool {
		check(p.Ended())
		return p.Ready(ctx) == nil
	})
}

// stop stops a program if it runs, even after ctx was cancelled.
func stop(ctx context.Context, p *process.Process) error {
	if !p.Running() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if code, err := p.Stop(ctx); err != nil || code > 0 {
		return fmt.Errorf("stop %s: exit code %d, %w, its last line: %s", p.Name, code, err, p.Log.Last())
	}
	return nil
}

// check fails if a program has exited.
func (s *system) check() {
	for _, p := range s.programs {
		check(p.Ended())
	}
}

// count counts messages of a kind from now on.
func (s *system) count(kind pipeline.Kind) *atomic.Int64 {
	n := &atomic.Int64{}
	messages := must(s.js.Conn().Subscribe(kind.All(), func(*nats.Msg) { n.Add(1) }))
	check(messages.SetPendingLimits(-1, -1))
	check(s.js.Conn().Flush())
	return n
}

// remove stops all programs with a name.
func (s *system) remove(ctx context.Context, name string) {
	s.programs = slices.DeleteFunc(s.programs, func(p *process.Process) bool {
		if p.Name == name {
			check(stop(ctx, p))
		}
		return p.Name == name
	})
}

// used returns the usage of all programs.
func (s *system) used() usages {
	s.check()
	used := usages{}
	for _, p := range s.programs {
		used.add(p.Name, p.PID())
	}
	return used
}

// stop stops all programs, NATS last, and removes their data. Call it by defer: it keeps an earlier failure.
func (s *system) stop(ctx context.Context) {
	errs := []error{failed(recover())}
	if s.js != nil {
		s.js.Conn().Close()
	}
	for _, p := range slices.Backward(s.programs) {
		errs = append(errs, stop(ctx, p))
	}
	check(errors.Join(append(errs, os.RemoveAll(s.dir))...))
}

// inFlight is the number of concurrent requests. More only increase the latency of an API server on two cores.
const inFlight = 32

// cluster is the API server of $KUBECONFIG, without rate limits in the client.
type cluster struct {
	kubernetes.Interface
	metadata metadata.Interface
	created  []string
}

func connect() *cluster {
	kube.BridgeKlog(zerolog.Nop()) // client-go logs the errors that it returns
	config := must((&kube.Options{}).Config(self))
	return &cluster{
		Interface: must(kubernetes.NewForConfig(config)),
		metadata:  must(metadata.NewForConfig(metadata.ConfigFor(config))),
	}
}

// namespace creates a namespace and returns its name.
func (c *cluster) namespace(ctx context.Context) string {
	created := must(c.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "curl-me-that-bench-"},
	}, metav1.CreateOptions{}))
	c.created = append(c.created, created.Name)
	return created.Name
}

// create creates ConfigMaps.
func (c *cluster) create(ctx context.Context, namespace string, count int, object func(n int) *corev1.ConfigMap) {
	check(inParallel(ctx, count, func(ctx context.Context, n int) error {
		_, err := c.CoreV1().ConfigMaps(namespace).Create(ctx, object(n), metav1.CreateOptions{})
		return err
	}))
}

// list returns the metadata of all ConfigMaps in a namespace.
func (c *cluster) list(ctx context.Context, namespace string) ([]metav1.PartialObjectMetadata, error) {
	list, err := c.metadata.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(namespace).
		List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list ConfigMaps: %w", err)
	}
	return list.Items, nil
}

// remove deletes all objects. The API server of make bench has no controller that empties namespaces.
func (c *cluster) remove(ctx context.Context) error {
	var errs []error
	for _, namespace := range c.created {
		all, err := c.list(ctx, namespace)
		errs = append(errs, err, inParallel(ctx, len(all), func(ctx context.Context, n int) error {
			return ignoreNotFound(c.CoreV1().ConfigMaps(namespace).Delete(ctx, all[n].Name, metav1.DeleteOptions{}))
		}), ignoreNotFound(c.CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{})))
	}
	return errors.Join(errs...)
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// change is a ConfigMap that was created or updated, and the time when the watch delivered it.
type change struct {
	*metav1.PartialObjectMetadata
	at time.Time
}

// watch delivers all changes in a namespace until ctx ends. It returns after the first list.
func (c *cluster) watch(ctx context.Context, namespace string) <-chan change {
	changes := make(chan change, 4096)
	send := func(object any) {
		if meta, ok := object.(*metav1.PartialObjectMetadata); ok {
			select {
			case changes <- change{meta, time.Now()}:
			case <-ctx.Done():
			}
		}
	}
	informer := metadatainformer.NewFilteredMetadataInformer(c.metadata,
		corev1.SchemeGroupVersion.WithResource("configmaps"), namespace, 0, cache.Indexers{}, nil).Informer()
	must(informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: send, UpdateFunc: func(_, object any) { send(object) },
	}))
	go informer.Run(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		check(context.Cause(ctx))
	}
	return changes
}

// inParallel calls do for 0 to count-1, inFlight at a time, until one fails.
func inParallel(ctx context.Context, count int, do func(ctx context.Context, n int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(inFlight)
	for n := range count {
		if ctx.Err() != nil {
			break
		}
		group.Go(func() error { return do(ctx, n) })
	}
	return group.Wait()
}
