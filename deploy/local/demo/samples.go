package demo

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kv8s/curl-me-that/proto/annotation"
)

const (
	namespace = metav1.NamespaceDefault
	downName  = "curl-me-that-down"
	// sampleURL is the URL in the sample ConfigMap, which the demo replaces.
	sampleURL = "https://v2.jokeapi.dev/joke/Programming?format=txt"
)

// samples are the ConfigMaps of the demo.
type samples struct {
	valid, invalid, down *corev1.ConfigMap
}

// readSamples reads the sample files, for servers at host.
func readSamples(dir, host string) (s samples, err error) {
	if s.valid, err = readSample(filepath.Join(dir, "config-map-valid.yaml"), host); err != nil {
		return s, err
	}
	if s.invalid, err = readSample(filepath.Join(dir, "config-map-invalid.yaml"), host); err != nil {
		return s, err
	}
	s.down = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name:        downName,
		Annotations: map[string]string{annotation.DefaultKey: fmt.Sprintf("joke=http://%s:%s%s", host, downPort, jokePath)},
	}}
	return s, nil
}

func readSample(path, host string) (*corev1.ConfigMap, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the sample ConfigMap (--samples names their folder): %w", err)
	}
	var cm corev1.ConfigMap
	if err := yaml.UnmarshalStrict(text, &cm); err != nil {
		return nil, fmt.Errorf("read the sample ConfigMap %s: %w", path, err)
	}
	for name, value := range cm.Annotations {
		cm.Annotations[name] = strings.ReplaceAll(value, sampleURL, "http://"+host+":"+jokePort+jokePath)
	}
	return &cm, nil
}
