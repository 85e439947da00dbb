#!/bin/sh
# Builds the chart library that pages and reports carry: Apache ECharts with the parts that our charts use, in one file.
# Needs npm and the network; neither an installation nor the tests do. Usage: tools/build_chart_library.sh
set -eu
echarts=6.1.0 esbuild=0.28.2
assets=$(cd "$(dirname "$0")/.." && pwd)/src/tradewind/reporting/charts/assets
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund "echarts@$echarts" "esbuild@$esbuild"
cat > entry.js <<'END'
import { use, init, connect, graphic } from "echarts/core";
import { CustomChart, LineChart, ParallelChart, ScatterChart } from "echarts/charts";
import { DataZoomInsideComponent, GridComponent, ParallelComponent, ToolboxComponent, TooltipComponent } from "echarts/components";
import { CanvasRenderer } from "echarts/renderers";
use([CustomChart, LineChart, ParallelChart, ScatterChart, DataZoomInsideComponent, GridComponent, ParallelComponent, TooltipComponent, CanvasRenderer, ToolboxComponent]);
globalThis.echarts = { init, connect, graphic };
END
{
  echo "/*! Apache ECharts $echarts (custom build), Apache License 2.0, with ZRender (BSD 3-Clause) and tslib (0BSD): see echarts.LICENSE.txt */"
  node_modules/.bin/esbuild entry.js --bundle --minify --format=iife --target=es2022 --legal-comments=none \
    --define:process.env.NODE_ENV='"production"' --log-level=warning
} > "$assets/echarts.js"
{
  echo "echarts.js is a custom build of Apache ECharts $echarts, made by tools/build_chart_library.sh."
  echo
  cat node_modules/echarts/NOTICE node_modules/echarts/LICENSE
  printf '\n\nZRender, which it contains:\n\n'
  cat node_modules/zrender/LICENSE
  printf '\n\nd3, of which it contains parts:\n\n'
  cat node_modules/echarts/licenses/LICENSE-d3
  printf '\n\ntslib, of which it contains parts:\n\n'
  cat node_modules/tslib/LICENSE.txt
} > "$assets/echarts.LICENSE.txt"
wc -c "$assets/echarts.js"
