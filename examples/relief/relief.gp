# A held-out region as a PNG: the coarse map, bicubic interpolation, the model, the truth.
#   gnuplot -e "data='region.dat'; out='region.png'" relief.gp
# data: columns  longitude  latitude  coarse  bicubic  model  true  (degrees, m), latitude by latitude with an empty
# line after each, longitudes rising. Colours mean the same in all four maps.
if (!exists("data")) data = 'region.dat'
if (!exists("out")) out = 'region.png'
if (!exists("name")) name = 'A region that was held out'

array title_of[4] = ['coarse map', 'bicubic interpolation', 'the model', 'true']
stats data using 1 nooutput prefix 'X'
stats data using 2 nooutput prefix 'Y'
stats data using 6 nooutput prefix 'Z'
array rmse[4]
do for [i = 1:4] {
  stats data using (column(i + 2) - $6)**2 nooutput prefix 'E'
  rmse[i] = sqrt(E_mean)
}
low = Z_min < -100 ? Z_min : -100
high = Z_max > 100 ? Z_max : 100

set terminal pngcairo size 1300,1240 enhanced font 'sans,14' background rgb 'white'
set output out
set multiplot
set label 1 name at screen 0.47,0.977 center font 'sans,20' textcolor rgb '#222222'
set border lw 1 lc rgb '#444444' front
set tics out nomirror textcolor rgb '#444444' front
set format x "%.0f°"
set format y "%.0f°"
set xrange [X_min:X_max]
set yrange [Y_min:Y_max]
unset key
set view map

# Blue below the sea, green to white above it, with a break at the coast.
set palette defined (low '#081d58', 0.5 * low '#225ea8', 0.1 * low '#41b6c4', -1 '#c7e9f4', 0 '#3d8c40', \
                     0.1 * high '#a6c96a', 0.35 * high '#e5d28c', 0.7 * high '#9a6a3a', high '#ffffff')
set cbrange [low:high]
set cblabel 'm' offset 1,0
do for [i = 1:4] {
  col = (i - 1) % 2
  row = (i - 1) / 2
  set lmargin at screen 0.06 + 0.43 * col
  set rmargin at screen 0.45 + 0.43 * col
  set tmargin at screen 0.92 - 0.47 * row
  set bmargin at screen 0.54 - 0.47 * row
  if (col == 0) {
    set format y "%.0f°"
  } else {
    set format y ""
  }
  if (i == 4) {
    set colorbox user origin 0.91,0.07 size 0.018,0.85
  } else {
    unset colorbox
  }
  set title (i == 4 ? title_of[i] : sprintf('%s (root-mean-square error %.0f m)', title_of[i], rmse[i])) \
    offset 0,-0.6 font 'sans,15'
  plot data using 1:2:(column(i + 2)) with image
  unset label 1
}
unset multiplot
