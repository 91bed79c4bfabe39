# One held-out month as a PNG: true wind, predicted wind, and their difference.
#   gnuplot -e "data='map.dat'; out='map.png'; month='July 1989'" map.gp
# data: columns  longitude  latitude  u_true  v_true  u_predicted  v_predicted  (degrees, m/s), latitude by latitude
# with an empty line after each, longitudes rising, `step` degrees apart. Colours show the speed of the wind
# (viridis) and the change of speed (blue: too slow, red: too fast); arrows show every fourth vector.
# relief (may be left out): columns longitude latitude height, on a grid like that of `data`; its zero line is the coast.
if (!exists("data")) data = 'map.dat'
if (!exists("out")) out = 'map.png'
if (!exists("month")) month = 'one held-out month'
if (!exists("step")) step = 2.5
if (!exists("relief")) relief = ''

# The coast first, as lines in a table.
set print $coast
print '0 100'
unset print
if (relief ne '') {
  set table $coast
  set contour base
  set cntrparam levels discrete 0
  unset surface
  splot relief using 1:2:3 with lines
  unset table
  unset contour
  set surface
}

speed(u, v) = sqrt(u * u + v * v)
stats data using (speed($3, $4)) nooutput prefix 'T'
stats data using (speed($5, $6)) nooutput prefix 'P'
stats data using (abs(speed($5, $6) - speed($3, $4))) nooutput prefix 'D'
stats data using (speed($5 - $3, $6 - $4) ** 2) nooutput prefix 'E'
stats data using 1 nooutput prefix 'X'
fastest = ceil(T_max > P_max ? T_max : P_max)
most = ceil(D_max)
rmse = sqrt(E_mean / 2)

set terminal pngcairo size 1200,1540 enhanced font 'sans,14' background rgb 'white'
set output out
set multiplot
set label 1 sprintf('Surface wind, %s', month) at screen 0.49,0.98 center font 'sans,20' textcolor rgb '#222222'

set border lw 1 lc rgb '#444444' front
set tics out nomirror textcolor rgb '#444444' front
set xrange [X_min - step / 2 : X_max + step / 2]
set yrange [-90:90]
set xtics ('60°E' 60, '120°E' 120, '180°' 180, '120°W' 240, '60°W' 300, '0°' 360, '0°' 0)
set ytics ('90°S' -90, '60°S' -60, '30°S' -30, '0°' 0, '30°N' 30, '60°N' 60, '90°N' 90)
set lmargin at screen 0.07
set rmargin at screen 0.885
set cbtics out
unset key

# An arrow of 10 m/s is 8 degrees long.
scale = 0.8
every_nth = 4
set style arrow 1 head size 2.2,20,60 filled lw 1.3 lc rgb '#ffffff'
set style arrow 2 head size 2.2,20,60 filled lw 1.3 lc rgb '#222222'
set style line 3 lw 1.3 lc rgb '#c8c8c8'
set style line 4 lw 1.3 lc rgb '#777777'
ruler(y) = sprintf('set arrow 9 from screen 0.745,%g to screen 0.745+%g,%g head size 2.2,20,60 filled lw 1.3 lc rgb "#222222"; \
  set label 9 "10 m/s" at screen 0.75+%g,%g left font "sans,12"', y, 10 * scale / (X_max - X_min + step) * 0.815, y, \
  10 * scale / (X_max - X_min + step) * 0.815, y)

set palette defined (0 '#440154', 1 '#482878', 2 '#3e4989', 3 '#31688e', 4 '#26828e', 5 '#1f9e89', \
                     6 '#35b779', 7 '#6ece58', 8 '#b5de2b', 9 '#fde725')
set cbrange [0:fastest]
set cblabel 'speed (m/s)' offset 1,0

set tmargin at screen 0.94
set bmargin at screen 0.69
set colorbox user origin 0.9,0.69 size 0.018,0.25
set title 'true' offset 0,-0.6 font 'sans,16'
eval ruler(0.95)
plot data using 1:2:(speed($3, $4)) with image, $coast using 1:2 with lines ls 3, \
     data using 1:2:(scale * $3):(scale * $4) every every_nth:every_nth:1:1 with vectors arrowstyle 1
unset label 1

set tmargin at screen 0.625
set bmargin at screen 0.375
set colorbox user origin 0.9,0.375 size 0.018,0.25
set title 'predicted from the three months before' offset 0,-0.6
eval ruler(0.635)
plot data using 1:2:(speed($5, $6)) with image, $coast using 1:2 with lines ls 3, \
     data using 1:2:(scale * $5):(scale * $6) every every_nth:every_nth:1:1 with vectors arrowstyle 1

set palette defined (0 '#053061', 1 '#2166ac', 2 '#4393c3', 3 '#92c5de', 4 '#d1e5f0', 5 '#f7f7f7', \
                     6 '#fddbc7', 7 '#f4a582', 8 '#d6604d', 9 '#b2182b', 10 '#67001f')
set cbrange [-most:most]
set cblabel 'speed, predicted - true (m/s)' offset 1,0
set tmargin at screen 0.31
set bmargin at screen 0.06
set colorbox user origin 0.9,0.06 size 0.018,0.25
set xlabel 'longitude'
set title sprintf('predicted - true (root mean square %.2f m/s)', rmse) offset 0,-0.6
eval ruler(0.32)
plot data using 1:2:(speed($5, $6) - speed($3, $4)) with image, $coast using 1:2 with lines ls 4, \
     data using 1:2:(scale * ($5 - $3)):(scale * ($6 - $4)) every every_nth:every_nth:1:1 with vectors arrowstyle 2
unset multiplot
