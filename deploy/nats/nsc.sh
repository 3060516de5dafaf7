#!/bin/sh
# Creates the content of accounts.conf for the operator that nsc has selected (`nsc env`), which needs
# a system account. The identity sys is missing, because it is a user of that account.
# Made by UPDATE_NSC=1 go test ./deploy/e2e/permissions -ginkgo.focus nsc.sh
set -eu

nsc add account CURL
nsc edit account CURL --js-mem-storage 67108864 --js-disk-storage 8589934592
nsc add export --account CURL --service --subject 'curl.>'
nsc add export --account CURL --service --subject '$JS.ACK.>'
nsc add export --account CURL --service --subject '$JS.API.INFO'
nsc add export --account CURL --service --subject '$JS.API.STREAM.INFO.*'
nsc add export --account CURL --service --subject '$JS.API.STREAM.CREATE.*'
nsc add export --account CURL --service --subject '$JS.API.STREAM.UPDATE.*'
nsc add export --account CURL --service --subject '$JS.API.STREAM.PURGE.*'
nsc add export --account CURL --service --subject '$JS.API.STREAM.MSG.DELETE.*'
nsc add export --account CURL --service --subject '$JS.API.CONSUMER.INFO.*.*'
nsc add export --account CURL --service --subject '$JS.API.CONSUMER.CREATE.*.*'
nsc add export --account CURL --service --subject '$JS.API.CONSUMER.PAUSE.*.*'
nsc add export --account CURL --service --subject '$JS.API.CONSUMER.MSG.NEXT.*.*' --response-type Stream
nsc add export --account CURL --service --subject '$JS.API.DIRECT.GET.*' --response-type Stream
nsc add export --account CURL --service --subject '$JS.API.DIRECT.GET.*.>'

nsc add account ADMIN
nsc add import --account ADMIN --src-account CURL --service --remote-subject '$JS.API.INFO'
nsc add import --account ADMIN --src-account CURL --service --remote-subject '$JS.API.STREAM.INFO.CURL_REQUESTS'
nsc add import --account ADMIN --src-account CURL --service --remote-subject '$JS.API.STREAM.INFO.CURL_RESULTS'
nsc add import --account ADMIN --src-account CURL --service --remote-subject '$JS.API.STREAM.INFO.CURL_FAILURES'
nsc add import --account ADMIN --src-account CURL --service --remote-subject '$JS.API.STREAM.INFO.CURL_HISTORY'
nsc add import --account ADMIN --src-account CURL --service --remote-subject '$JS.API.CONSUMER.INFO.CURL_REQUESTS.fetcher'
nsc add import --account ADMIN --src-account CURL --service --remote-subject '$JS.API.CONSUMER.INFO.CURL_RESULTS.writer'
nsc add import --account ADMIN --src-account CURL --service --remote-subject '$JS.API.DIRECT.GET.CURL_REQUESTS'
nsc add import --account ADMIN --src-account CURL --service --remote-subject '$JS.API.DIRECT.GET.CURL_REQUESTS.>'
nsc add import --account ADMIN --src-account CURL --service --remote-subject '$JS.API.DIRECT.GET.CURL_FAILURES'
nsc add import --account ADMIN --src-account CURL --service --remote-subject '$JS.API.DIRECT.GET.CURL_HISTORY'
nsc add import --account ADMIN --src-account CURL --service --remote-subject '$JS.API.DIRECT.GET.CURL_HISTORY.curl.body.>'
nsc add import --account ADMIN --src-account CURL --service --remote-subject 'curl.due.>'
nsc add import --account ADMIN --src-account CURL --service --remote-subject 'curl.timer.>'
nsc add import --account ADMIN --src-account CURL --service --remote-subject '$JS.API.CONSUMER.PAUSE.CURL_REQUESTS.fetcher'
nsc add import --account ADMIN --src-account CURL --service --remote-subject '$JS.API.STREAM.PURGE.CURL_FAILURES'
nsc add import --account ADMIN --src-account CURL --service --remote-subject '$JS.API.STREAM.MSG.DELETE.CURL_FAILURES'
nsc add user --account ADMIN --name admin \
  --allow-pub '$SYS.REQ.USER.INFO' \
  --allow-pub '$JS.API.STREAM.INFO.CURL_REQUESTS' \
  --allow-pub '$JS.API.STREAM.INFO.CURL_RESULTS' \
  --allow-pub '$JS.API.STREAM.INFO.CURL_FAILURES' \
  --allow-pub '$JS.API.STREAM.INFO.CURL_HISTORY' \
  --allow-pub '$JS.API.CONSUMER.INFO.CURL_REQUESTS.fetcher' \
  --allow-pub '$JS.API.CONSUMER.INFO.CURL_RESULTS.writer' \
  --allow-pub '$JS.API.DIRECT.GET.CURL_REQUESTS' \
  --allow-pub '$JS.API.DIRECT.GET.CURL_REQUESTS.>' \
  --allow-pub '$JS.API.DIRECT.GET.CURL_FAILURES' \
  --allow-pub '$JS.API.DIRECT.GET.CURL_HISTORY' \
  --allow-pub '$JS.API.DIRECT.GET.CURL_HISTORY.curl.body.>' \
  --allow-pub 'curl.due.>' \
  --allow-pub 'curl.timer.>' \
  --allow-pub '$JS.API.CONSUMER.PAUSE.CURL_REQUESTS.fetcher' \
  --allow-pub '$JS.API.STREAM.PURGE.CURL_FAILURES' \
  --allow-pub '$JS.API.STREAM.MSG.DELETE.CURL_FAILURES' \
  --allow-sub '_INBOX_curlctl.>'

nsc add account FETCHER
nsc add import --account FETCHER --src-account CURL --service --remote-subject '$JS.API.INFO'
nsc add import --account FETCHER --src-account CURL --service --remote-subject 'curl.timer.>'
nsc add import --account FETCHER --src-account CURL --service --remote-subject 'curl.result.content.>'
nsc add import --account FETCHER --src-account CURL --service --remote-subject 'curl.result.failure.>'
nsc add import --account FETCHER --src-account CURL --service --remote-subject 'curl.failure.>'
nsc add import --account FETCHER --src-account CURL --service --remote-subject 'curl.ended.>'
nsc add import --account FETCHER --src-account CURL --service --remote-subject '$JS.API.CONSUMER.INFO.CURL_REQUESTS.fetcher'
nsc add import --account FETCHER --src-account CURL --service --remote-subject '$JS.API.CONSUMER.MSG.NEXT.CURL_REQUESTS.fetcher'
nsc add import --account FETCHER --src-account CURL --service --remote-subject '$JS.ACK.CURL_REQUESTS.fetcher.*.*.*.*.*'
nsc add import --account FETCHER --src-account CURL --service --remote-subject '$JS.ACK.*.*.CURL_REQUESTS.fetcher.*.*.*.*.>'
nsc add import --account FETCHER --src-account CURL --service --remote-subject '$JS.API.DIRECT.GET.CURL_REQUESTS'
nsc add import --account FETCHER --src-account CURL --service --remote-subject '$JS.API.DIRECT.GET.CURL_REQUESTS.curl.want.>'
nsc add user --account FETCHER --name fetcher \
  --allow-pub 'curl.timer.>' \
  --allow-pub 'curl.result.content.>' \
  --allow-pub 'curl.result.failure.>' \
  --allow-pub 'curl.failure.>' \
  --allow-pub 'curl.ended.>' \
  --allow-pub '$JS.API.CONSUMER.INFO.CURL_REQUESTS.fetcher' \
  --allow-pub '$JS.API.CONSUMER.MSG.NEXT.CURL_REQUESTS.fetcher' \
  --allow-pub '$JS.ACK.CURL_REQUESTS.fetcher.*.*.*.*.*' \
  --allow-pub '$JS.ACK.*.*.CURL_REQUESTS.fetcher.*.*.*.*.>' \
  --allow-pub '$JS.API.DIRECT.GET.CURL_REQUESTS' \
  --allow-pub '$JS.API.DIRECT.GET.CURL_REQUESTS.curl.want.>' \
  --allow-sub '_INBOX_fetcher.>'

nsc add account REPLAYER
nsc add import --account REPLAYER --src-account CURL --service --remote-subject '$JS.API.INFO'
nsc add import --account REPLAYER --src-account CURL --service --remote-subject '$JS.API.STREAM.INFO.CURL_REQUESTS'
nsc add import --account REPLAYER --src-account CURL --service --remote-subject '$JS.API.STREAM.INFO.CURL_RESULTS'
nsc add import --account REPLAYER --src-account CURL --service --remote-subject '$JS.API.STREAM.INFO.CURL_FAILURES'
nsc add import --account REPLAYER --src-account CURL --service --remote-subject '$JS.API.STREAM.INFO.CURL_HISTORY'
nsc add import --account REPLAYER --src-account CURL --service --remote-subject '$JS.API.CONSUMER.INFO.CURL_REQUESTS.fetcher'
nsc add import --account REPLAYER --src-account CURL --service --remote-subject '$JS.API.CONSUMER.INFO.CURL_RESULTS.writer'
nsc add import --account REPLAYER --src-account CURL --service --remote-subject '$JS.API.DIRECT.GET.CURL_REQUESTS'
nsc add import --account REPLAYER --src-account CURL --service --remote-subject '$JS.API.DIRECT.GET.CURL_REQUESTS.>'
nsc add import --account REPLAYER --src-account CURL --service --remote-subject '$JS.API.DIRECT.GET.CURL_FAILURES'
nsc add import --account REPLAYER --src-account CURL --service --remote-subject '$JS.API.DIRECT.GET.CURL_HISTORY'
nsc add import --account REPLAYER --src-account CURL --service --remote-subject '$JS.API.DIRECT.GET.CURL_HISTORY.curl.body.>'
nsc add import --account REPLAYER --src-account CURL --service --remote-subject 'curl.due.>'
nsc add import --account REPLAYER --src-account CURL --service --remote-subject 'curl.timer.>'
nsc add user --account REPLAYER --name replayer \
  --allow-pub '$SYS.REQ.USER.INFO' \
  --allow-pub '$JS.API.STREAM.INFO.CURL_REQUESTS' \
  --allow-pub '$JS.API.STREAM.INFO.CURL_RESULTS' \
  --allow-pub '$JS.API.STREAM.INFO.CURL_FAILURES' \
  --allow-pub '$JS.API.STREAM.INFO.CURL_HISTORY' \
  --allow-pub '$JS.API.CONSUMER.INFO.CURL_REQUESTS.fetcher' \
  --allow-pub '$JS.API.CONSUMER.INFO.CURL_RESULTS.writer' \
  --allow-pub '$JS.API.DIRECT.GET.CURL_REQUESTS' \
  --allow-pub '$JS.API.DIRECT.GET.CURL_REQUESTS.>' \
  --allow-pub '$JS.API.DIRECT.GET.CURL_FAILURES' \
  --allow-pub '$JS.API.DIRECT.GET.CURL_HISTORY' \
  --allow-pub '$JS.API.DIRECT.GET.CURL_HISTORY.curl.body.>' \
  --allow-pub 'curl.due.>' \
  --allow-pub 'curl.timer.>' \
  --allow-sub '_INBOX_curlctl.>'

nsc add account SETUP
nsc add import --account SETUP --src-account CURL --service --remote-subject '$JS.API.INFO'
nsc add import --account SETUP --src-account CURL --service --remote-subject '$JS.API.STREAM.INFO.CURL_REQUESTS'
nsc add import --account SETUP --src-account CURL --service --remote-subject '$JS.API.STREAM.INFO.CURL_RESULTS'
nsc add import --account SETUP --src-account CURL --service --remote-subject '$JS.API.STREAM.INFO.CURL_FAILURES'
nsc add import --account SETUP --src-account CURL --service --remote-subject '$JS.API.STREAM.INFO.CURL_HISTORY'
nsc add import --account SETUP --src-account CURL --service --remote-subject '$JS.API.CONSUMER.INFO.CURL_REQUESTS.fetcher'
nsc add import --account SETUP --src-account CURL --service --remote-subject '$JS.API.CONSUMER.INFO.CURL_RESULTS.writer'
nsc add import --account SETUP --src-account CURL --service --remote-subject '$JS.API.STREAM.CREATE.CURL_REQUESTS'
nsc add import --account SETUP --src-account CURL --service --remote-subject '$JS.API.STREAM.CREATE.CURL_RESULTS'
nsc add import --account SETUP --src-account CURL --service --remote-subject '$JS.API.STREAM.CREATE.CURL_FAILURES'
nsc add import --account SETUP --src-account CURL --service --remote-subject '$JS.API.STREAM.CREATE.CURL_HISTORY'
nsc add import --account SETUP --src-account CURL --service --remote-subject '$JS.API.STREAM.UPDATE.CURL_REQUESTS'
nsc add import --account SETUP --src-account CURL --service --remote-subject '$JS.API.STREAM.UPDATE.CURL_RESULTS'
nsc add import --account SETUP --src-account CURL --service --remote-subject '$JS.API.STREAM.UPDATE.CURL_FAILURES'
nsc add import --account SETUP --src-account CURL --service --remote-subject '$JS.API.STREAM.UPDATE.CURL_HISTORY'
nsc add import --account SETUP --src-account CURL --service --remote-subject '$JS.API.CONSUMER.CREATE.CURL_REQUESTS.fetcher'
nsc add import --account SETUP --src-account CURL --service --remote-subject '$JS.API.CONSUMER.CREATE.CURL_RESULTS.writer'
nsc add user --account SETUP --name setup \
  --allow-pub '$SYS.REQ.USER.INFO' \
  --allow-pub '$JS.API.STREAM.INFO.CURL_REQUESTS' \
  --allow-pub '$JS.API.STREAM.INFO.CURL_RESULTS' \
  --allow-pub '$JS.API.STREAM.INFO.CURL_FAILURES' \
  --allow-pub '$JS.API.STREAM.INFO.CURL_HISTORY' \
  --allow-pub '$JS.API.CONSUMER.INFO.CURL_REQUESTS.fetcher' \
  --allow-pub '$JS.API.CONSUMER.INFO.CURL_RESULTS.writer' \
  --allow-pub '$JS.API.STREAM.CREATE.CURL_REQUESTS' \
  --allow-pub '$JS.API.STREAM.CREATE.CURL_RESULTS' \
  --allow-pub '$JS.API.STREAM.CREATE.CURL_FAILURES' \
  --allow-pub '$JS.API.STREAM.CREATE.CURL_HISTORY' \
  --allow-pub '$JS.API.STREAM.UPDATE.CURL_REQUESTS' \
  --allow-pub '$JS.API.STREAM.UPDATE.CURL_RESULTS' \
  --allow-pub '$JS.API.STREAM.UPDATE.CURL_FAILURES' \
  --allow-pub '$JS.API.STREAM.UPDATE.CURL_HISTORY' \
  --allow-pub '$JS.API.CONSUMER.CREATE.CURL_REQUESTS.fetcher' \
  --allow-pub '$JS.API.CONSUMER.CREATE.CURL_RESULTS.writer' \
  --allow-sub '_INBOX_curlctl.>'

nsc add account VIEWER
nsc add import --account VIEWER --src-account CURL --service --remote-subject '$JS.API.INFO'
nsc add import --account VIEWER --src-account CURL --service --remote-subject '$JS.API.STREAM.INFO.CURL_REQUESTS'
nsc add import --account VIEWER --src-account CURL --service --remote-subject '$JS.API.STREAM.INFO.CURL_RESULTS'
nsc add import --account VIEWER --src-account CURL --service --remote-subject '$JS.API.STREAM.INFO.CURL_FAILURES'
nsc add import --account VIEWER --src-account CURL --service --remote-subject '$JS.API.STREAM.INFO.CURL_HISTORY'
nsc add import --account VIEWER --src-account CURL --service --remote-subject '$JS.API.CONSUMER.INFO.CURL_REQUESTS.fetcher'
nsc add import --account VIEWER --src-account CURL --service --remote-subject '$JS.API.CONSUMER.INFO.CURL_RESULTS.writer'
nsc add import --account VIEWER --src-account CURL --service --remote-subject '$JS.API.DIRECT.GET.CURL_REQUESTS'
nsc add import --account VIEWER --src-account CURL --service --remote-subject '$JS.API.DIRECT.GET.CURL_REQUESTS.>'
nsc add import --account VIEWER --src-account CURL --service --remote-subject '$JS.API.DIRECT.GET.CURL_FAILURES'
nsc add import --account VIEWER --src-account CURL --service --remote-subject '$JS.API.DIRECT.GET.CURL_HISTORY'
nsc add import --account VIEWER --src-account CURL --service --remote-subject '$JS.API.DIRECT.GET.CURL_HISTORY.curl.body.>'
nsc add user --account VIEWER --name viewer \
  --allow-pub '$SYS.REQ.USER.INFO' \
  --allow-pub '$JS.API.STREAM.INFO.CURL_REQUESTS' \
  --allow-pub '$JS.API.STREAM.INFO.CURL_RESULTS' \
  --allow-pub '$JS.API.STREAM.INFO.CURL_FAILURES' \
  --allow-pub '$JS.API.STREAM.INFO.CURL_HISTORY' \
  --allow-pub '$JS.API.CONSUMER.INFO.CURL_REQUESTS.fetcher' \
  --allow-pub '$JS.API.CONSUMER.INFO.CURL_RESULTS.writer' \
  --allow-pub '$JS.API.DIRECT.GET.CURL_REQUESTS' \
  --allow-pub '$JS.API.DIRECT.GET.CURL_REQUESTS.>' \
  --allow-pub '$JS.API.DIRECT.GET.CURL_FAILURES' \
  --allow-pub '$JS.API.DIRECT.GET.CURL_HISTORY' \
  --allow-pub '$JS.API.DIRECT.GET.CURL_HISTORY.curl.body.>' \
  --allow-sub '_INBOX_curlctl.>'

nsc add account WATCHER
nsc add import --account WATCHER --src-account CURL --service --remote-subject '$JS.API.INFO'
nsc add import --account WATCHER --src-account CURL --service --remote-subject 'curl.want.>'
nsc add import --account WATCHER --src-account CURL --service --remote-subject 'curl.result.sync.>'
nsc add import --account WATCHER --src-account CURL --service --remote-subject '$JS.API.STREAM.INFO.CURL_REQUESTS'
nsc add import --account WATCHER --src-account CURL --service --remote-subject '$JS.API.STREAM.INFO.CURL_RESULTS'
nsc add import --account WATCHER --src-account CURL --service --remote-subject '$JS.API.STREAM.INFO.CURL_FAILURES'
nsc add import --account WATCHER --src-account CURL --service --remote-subject '$JS.API.STREAM.INFO.CURL_HISTORY'
nsc add import --account WATCHER --src-account CURL --service --remote-subject '$JS.API.CONSUMER.INFO.CURL_REQUESTS.fetcher'
nsc add import --account WATCHER --src-account CURL --service --remote-subject '$JS.API.CONSUMER.INFO.CURL_RESULTS.writer'
nsc add import --account WATCHER --src-account CURL --service --remote-subject '$JS.API.DIRECT.GET.CURL_REQUESTS'
nsc add import --account WATCHER --src-account CURL --service --remote-subject '$JS.API.DIRECT.GET.CURL_REQUESTS.curl.want.>'
nsc add user --account WATCHER --name watcher \
  --allow-pub 'curl.want.>' \
  --allow-pub 'curl.result.sync.>' \
  --allow-pub '$JS.API.STREAM.INFO.CURL_REQUESTS' \
  --allow-pub '$JS.API.STREAM.INFO.CURL_RESULTS' \
  --allow-pub '$JS.API.STREAM.INFO.CURL_FAILURES' \
  --allow-pub '$JS.API.STREAM.INFO.CURL_HISTORY' \
  --allow-pub '$JS.API.CONSUMER.INFO.CURL_REQUESTS.fetcher' \
  --allow-pub '$JS.API.CONSUMER.INFO.CURL_RESULTS.writer' \
  --allow-pub '$JS.API.DIRECT.GET.CURL_REQUESTS' \
  --allow-pub '$JS.API.DIRECT.GET.CURL_REQUESTS.curl.want.>' \
  --allow-sub '_INBOX_watcher.>'

nsc add account WRITER
nsc add import --account WRITER --src-account CURL --service --remote-subject '$JS.API.INFO'
nsc add import --account WRITER --src-account CURL --service --remote-subject 'curl.failure.>'
nsc add import --account WRITER --src-account CURL --service --remote-subject 'curl.body.>'
nsc add import --account WRITER --src-account CURL --service --remote-subject 'curl.version.>'
nsc add import --account WRITER --src-account CURL --service --remote-subject '$JS.API.DIRECT.GET.CURL_HISTORY.curl.body.>'
nsc add import --account WRITER --src-account CURL --service --remote-subject '$JS.API.CONSUMER.INFO.CURL_RESULTS.writer'
nsc add import --account WRITER --src-account CURL --service --remote-subject '$JS.API.CONSUMER.MSG.NEXT.CURL_RESULTS.writer'
nsc add import --account WRITER --src-account CURL --service --remote-subject '$JS.ACK.CURL_RESULTS.writer.*.*.*.*.*'
nsc add import --account WRITER --src-account CURL --service --remote-subject '$JS.ACK.*.*.CURL_RESULTS.writer.*.*.*.*.>'
nsc add user --account WRITER --name writer \
  --allow-pub 'curl.failure.>' \
  --allow-pub 'curl.body.>' \
  --allow-pub 'curl.version.>' \
  --allow-pub '$JS.API.DIRECT.GET.CURL_HISTORY.curl.body.>' \
  --allow-pub '$JS.API.CONSUMER.INFO.CURL_RESULTS.writer' \
  --allow-pub '$JS.API.CONSUMER.MSG.NEXT.CURL_RESULTS.writer' \
  --allow-pub '$JS.ACK.CURL_RESULTS.writer.*.*.*.*.*' \
  --allow-pub '$JS.ACK.*.*.CURL_RESULTS.writer.*.*.*.*.>' \
  --allow-sub '_INBOX_writer.>'
