package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// EtcdSocket is relative to the folder of data, in which both processes run: the
// path of a Unix socket is limited to about a hundred bytes. A socket is closed to
// other users and to anything that can only reach ports.
const EtcdSocket = "etcd.sock"

func startEtcd(ctx context.Context, path string, d dataDir) (*process, error) {
	socket := d.path(EtcdSocket)
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove the socket of an earlier etcd: %w", err)
	}
	etcd, err := program{name: "etcd", path: path, args: etcdFlags(d), dir: d.dir, log: d.log("etcd")}.start()
	if err != nil {
		return nil, err
	}
	err = etcd.await(ctx, 10*time.Millisecond, func(context.Context) error {
		_, err := os.Stat(socket)
		return err
	})
	if err != nil {
		etcd.kill()
		return nil, err
	}
	return etcd, nil
}

func etcdFlags(d dataDir) []string {
	// There is one member, so the addresses that it advertises are not read, and
	// port 0 keeps the one for peers, which cannot be switched off, out of the way.
	const nowhere = "http://127.0.0.1:0"
	return []string{
		"--data-dir=" + d.path("etcd"),
		"--listen-client-urls=unix://" + EtcdSocket,
		"--advertise-client-urls=" + nowhere,
		"--listen-peer-urls=" + nowhere,
		"--initial-advertise-peer-urls=" + nowhere,
		"--initial-cluster=default=" + nowhere,
		"--unsafe-no-fsync",
		"--enable-pprof", // on the socket; make bench reads it
	}
}
